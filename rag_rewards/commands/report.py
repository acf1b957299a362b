"""`rag-rewards report`: scored rows as one page."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.groups import group_by_key
from rag_rewards.io.sinks import open_output
from rag_rewards.loading import RecipeSource, load_recipe
from rag_rewards.report.explanation import LONGEST, Explanation, explain
from rag_rewards.report.page import page
from rag_rewards.report.rows import (
    Configurations,
    Fault,
    advantages,
    read_rows,
    recorded_recipe,
    rescored,
)
from rag_rewards.report.statistics import Facts, Statistics, facts, statistics
from rag_rewards.rows import ScoredRow
from rag_rewards.scorer import Scorer
from rag_rewards.version import __version__

TEXT_BYTES = 3_500_000
"""Compressed bytes of responses and documents in a page; beyond it, rollouts keep their numbers."""
BLOCK_ROWS = 128
BLOCK_CHARACTERS = 400_000
SHOWCASE = 6


@dataclass
class Done:
    """A page that was written."""

    rows: int
    faults: list[Fault]
    messages: list[str] = field(default_factory=list)


def report(source: str, output: str, recipe: RecipeSource | None, title: str | None) -> Done:
    """Read the rows, score them where a recipe is given, and write the page.

    Raises UsageError when the rows have no scores and no recipe is given.
    """
    scorer = None if recipe is None else Scorer.load(recipe)
    rows, faults = read_rows(source)
    if scorer is not None:
        rows, unscored = rescored(rows, scorer)
        faults += unscored
    elif rows and not any(row.is_scored or row.reward is not None for row in rows):
        raise OptionError(
            "the rows of {source} have no reward: score them first, or set {recipe}", source=source
        )
    equation = scorer.reward.equation if scorer else equation_of(rows)
    title = title or os.path.basename(source)
    data, packed = contents(rows, faults, title, equation)
    text = page(f"{title} – rag-rewards", "report.js", data, packed)
    write_page(output, text)
    messages = [f"{len(rows):,} rollouts in {output}, {len(text.encode()) / 1e6:.1f} MB"]
    messages += [f"note: {note}" for note in data["statistics"].notes]
    messages += [f"{fault.row}: {fault.message}" for fault in faults[:5]]
    if len(faults) > 5:
        messages.append(f"{len(faults):,} rows in error, the others are not listed")
    return Done(len(rows), faults, messages)


def equation_of(rows: Sequence[ScoredRow]) -> str:
    """Return the reward as a formula, where the rows name their recipe."""
    if not rows:
        return ""
    try:
        return load_recipe(recorded_recipe(rows[0])).equation
    except UsageError:  # no signature, or one of a custom recipe or of a newer version
        return ""


def contents(
    rows: Sequence[ScoredRow], faults: Sequence[Fault], title: str, equation: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is in the page at once, and what it unpacks: columns of the table, texts in blocks."""
    groups = group_by_key(rows)
    known = [facts(row) for row in rows]
    relative = advantages(rows, groups)
    numbers = statistics(rows, known, groups)
    blocks, place = _texts(rows, groups, relative, equation)
    packed: dict[str, Any] = {"columns": _columns(rows, known, groups, relative, numbers, place)}
    packed |= {f"block-{i}": block for i, block in enumerate(blocks)}
    data = {
        "title": title,
        "version": __version__,
        "equation": equation,
        "signature": rows[0].signature if rows else "",
        "faults": [[fault.row, fault.message] for fault in faults[:20]],
        "failed": len(faults),
        "texts": sum(each is not None for each in place),
        "groups": len(groups),
        "showcase": _showcase(rows, groups),
        "statistics": numbers,
    }
    return data, packed


def _columns(
    rows: Sequence[ScoredRow],
    known: Sequence[Facts],
    groups: Sequence[Sequence[int]],
    relative: Sequence[float | None],
    numbers: Statistics,
    place: Sequence[int | None],
) -> dict[str, Any]:
    """The table, column by column."""
    group_of = {i: at for at, group in enumerate(groups) for i in group}
    parts = [name for name in numbers.names if name not in ("reward", "correct")]
    return {
        "id": [str(row.id) for row in rows],
        "group": [group_of[i] for i in range(len(rows))],
        "question": [_cut(rows[group[0]].question or "", 160) for group in groups],
        "key": [rows[group[0]].key or "" for group in groups],
        "step": [row.step for row in rows],
        "split": [row.split for row in rows],
        "reward": [_round(row.reward) for row in rows],
        "correct": [_round(row.correct) for row in rows],
        "advantage": [_round(each) for each in relative],
        "parts": {
            name: [_round((row.components or {}).get(name)) for row in rows] for name in parts
        },
        "words": [each.words for each in known],
        "cites": [each.cites for each in known],
        "refused": [int(each.refused or each.abstained) for each in known],
        "cut": [int(each.cut) for each in known],
        "answer": [_answer(row) for row in rows],
        "block": list(place),
    }


def _answer(row: ScoredRow) -> str:
    """The answer in a few words: what the recipe read, else the end of the response."""
    said = (row.details or {}).get("answer")
    text = said if isinstance(said, str) and said.strip() else row.parsed.visible.strip()
    return _cut(text, 90)


def _cut(text: str, limit: int) -> str:
    flat = " ".join(text[: 4 * limit].split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _showcase(rows: Sequence[ScoredRow], groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Group, its best and its worst rollout: those whose rewards are furthest apart."""
    found = []
    for at, group in enumerate(groups):
        members = [(value, i) for i in group if (value := rows[i].reward) is not None]
        if len(members) > 1 and max(members)[0] > min(members)[0]:
            best, worst = max(members), min(members)
            found.append((best[0] - worst[0], at, best[1], worst[1]))
    found.sort(key=lambda each: (-each[0], each[1]))
    return [list(each[1:]) for each in found[:SHOWCASE]]


def _texts(
    rows: Sequence[ScoredRow],
    groups: Sequence[Sequence[int]],
    relative: Sequence[float | None],
    equation: str,
) -> tuple[list[dict[str, Any]], list[int | None]]:
    """Explanations in blocks of whole groups, until the page is full; where each one stands.

    Groups are taken from all over the file, those of the showcase first. Documents that a group
    shares stand in its block once.
    """
    place: list[int | None] = [None] * len(rows)
    blocks: list[dict[str, Any]] = []
    configurations = Configurations()
    size = 0
    shown = {each[0] for each in _showcase(rows, groups)}
    order = [*sorted(shown), *(at for at in _spread(len(groups)) if at not in shown)]
    for members in _portions(order, groups, rows):
        block = _block(rows, members, relative, configurations)
        size += len(zlib.compress(msgspec.json.encode(block), 6))
        if size > TEXT_BYTES and blocks:
            break
        for i in members:
            place[i] = len(blocks)
        blocks.append(block)
    return blocks, place


def _spread(n: int) -> Iterator[int]:
    """All of 0 to n − 1, from all over: every 16th first, then those between."""
    for first in range(16):
        yield from range(first, n, 16)


def _portions(
    order: Sequence[int], groups: Sequence[Sequence[int]], rows: Sequence[ScoredRow]
) -> Iterator[list[int]]:
    """Whole groups, until there are enough rollouts or enough text for a block."""
    members: list[int] = []
    size = 0
    for at in order:
        members.extend(groups[at])
        size += sum(min(len(rows[i].parsed.text), LONGEST) for i in groups[at])
        if len(members) >= BLOCK_ROWS or size >= BLOCK_CHARACTERS:
            yield members
            members, size = [], 0
    if members:
        yield members


def _block(
    rows: Sequence[ScoredRow],
    members: Sequence[int],
    relative: Sequence[float | None],
    configurations: Configurations,
) -> dict[str, Any]:
    texts: dict[str, int] = {}
    found: dict[str, Any] = {}
    for i in members:
        configuration = configurations.of(rows[i])
        made = explain(rows[i], advantage=relative[i], configuration=configuration)
        found[str(i)] = _compact(made, texts)
    return {"texts": list(texts), "rows": found}


def _compact(made: Explanation, texts: dict[str, int]) -> dict[str, Any]:
    """An explanation as data, its documents by their place among the block's texts."""
    passages = made.passages
    made.passages, made.signature = [], ""
    data: dict[str, Any] = msgspec.to_builtins(made)
    data["passages"] = [
        msgspec.to_builtins(each) | {"text": texts.setdefault(each.text, len(texts))}
        for each in passages
    ]
    return data


def write_page(path: str, text: str) -> None:
    """A page or a picture at a path; it takes its name when it is whole."""
    if path.endswith(".parquet"):
        raise UsageError(f"{path}: a page is written as .html, a picture as .svg")
    output = open_output(path)
    try:
        output.write(text.encode("utf-8", "replace"))
        output.commit()
    finally:
        output.close()
