"""Scored rows as a page sees them: the rollout, its score, and what a row carries beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rag_rewards.blueprints import Scored
from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.grading import Grader
from rag_rewards.reading import open_source
from rag_rewards.rollout import Rollout, Score, decode_row, row_error
from rag_rewards.training.advantages import zscores


class Seen(Rollout, frozen=True, kw_only=True, dict=True):
    """A rollout with what an earlier scoring wrote on it."""

    reward: float | None = None
    components: dict[str, float | None] | None = None
    correct: float | None = None
    details: dict[str, Any] | None = None
    signature: str | None = None
    tokens: list[str] | None = None

    @property
    def score(self) -> Score:
        return Score(self.reward, self.components or {}, self.correct, self.details or {})

    @property
    def scored(self) -> bool:
        return self.components is not None


class Fault(msgspec.Struct, frozen=True):
    """A row that cannot be shown, or scored, and why."""

    row: str
    message: str


_DECODER = msgspec.json.Decoder(Seen)


def read_rows(source: str) -> tuple[list[Seen], list[Fault]]:
    """Every row of a file, each with an id (its line where it brings none), and the broken ones."""
    rows: list[Seen] = []
    faults: list[Fault] = []
    opened = open_source(source)
    try:
        for number, line in opened.lines:
            try:
                row = _decoded(line)
            except RolloutError as error:
                faults.append(Fault(f"line {number}", str(error)))
                continue
            if row.id is None:
                row = msgspec.structs.replace(row, id=number)
            try:
                _ = row.parsed
            except RolloutError as error:
                faults.append(Fault(str(row.id), str(error)))
                continue
            rows.append(row)
    finally:
        opened.close()
    return rows, faults


def _decoded(line: bytes) -> Seen:
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise row_error(error) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        decode_row(line)  # says what is wrong
        raise


def by_group(rows: Sequence[Rollout]) -> list[list[int]]:
    """Positions of the rows of each group, in order of appearance."""
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        key = row.key
        groups.setdefault(f"row {row.id}" if key is None else f"group {key}", []).append(i)
    return list(groups.values())


def rescored(rows: Sequence[Seen], grader: Grader) -> tuple[list[Seen], list[Fault]]:
    """The rows under a recipe, and those that it cannot score."""
    asked: list[Seen | RolloutError] = list(rows)
    if grader.asks:
        asked = grader.gather(rows)
    known = [row for row in asked if isinstance(row, Seen)]
    scores = iter(Grader(grader.reward).score_each(known, by_group(known)))
    out: list[Seen] = []
    faults: list[Fault] = []
    for before, row in zip(rows, asked, strict=True):
        result: Scored = row if isinstance(row, RolloutError) else next(scores)
        if isinstance(row, RolloutError) or isinstance(result, RolloutError):
            faults.append(Fault(str(before.id), _said(result)))
            continue
        out.append(with_score(row, result, grader.signature))
    return out, faults


def with_score(row: Seen, score: Score, signature: str) -> Seen:
    return msgspec.structs.replace(
        row,
        reward=score.value,
        components=dict(score.components),
        correct=score.correct,
        details=dict(score.details),
        signature=signature,
    )


def _said(result: Scored) -> str:
    if isinstance(result, RolloutError):
        where = f"{result.path}: " if result.path else ""
        return where + result.message
    return "not scored"


def advantages(rows: Sequence[Seen], groups: Iterable[Sequence[int]]) -> list[float | None]:
    """Each rollout's z-score within its group; None where there is nothing to compare with."""
    out: list[float | None] = [None] * len(rows)
    for group in groups:
        members = [i for i in group if rows[i].reward is not None]
        if len(members) < 2:
            continue
        values = zscores([value for i in members if (value := rows[i].reward) is not None])
        for i, value in zip(members, values, strict=True):
            out[i] = value
    return out


def recorded(signature: str | None) -> tuple[str, dict[str, Any]] | None:
    """The recipe and settings that a signature names; None where it names none that is known."""
    from rag_rewards.recipes import RECIPES

    if not signature:
        return None
    try:
        _, _, name, said = signature.split(" ", 3)
        settings = msgspec.json.decode(said.split(" models {")[0], type=dict[str, Any])
    except (ValueError, msgspec.MsgspecError):
        return None
    return (name, settings) if name in RECIPES else None


def plan_of(row: Seen) -> Any:
    """The plan that scored a row. UsageError where the row does not say."""
    from rag_rewards.scoring import Plan

    found = recorded(row.signature)
    if found is None:
        raise UsageError("which recipe? the rows carry no signature of one: give --recipe NAME")
    return Plan(recipe=found[0], settings=found[1])
