"""Read the rows of a report, score them again, and find the recipe that scored them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rag_rewards.errors import OptionError, RolloutError, UsageError
from rag_rewards.files.sources import open_source
from rag_rewards.loading import RecipeSpec, recorded_settings, recorded_spec
from rag_rewards.rows import ScoredRow, decode_line
from rag_rewards.scorer import Scorer
from rag_rewards.signature import Signature
from rag_rewards.training.advantages import zscores


class RowFault(msgspec.Struct, frozen=True):
    """A row that cannot be shown or scored, and the reason."""

    row: str
    message: str


_ROW = msgspec.json.Decoder(ScoredRow)


@dataclass
class RowFile:
    """The rows of a file, and the faults of rows in error."""

    name: str
    rows: list[ScoredRow] = field(default_factory=list)
    faults: list[RowFault] = field(default_factory=list)

    @property
    def has_scores(self) -> bool:
        """Whether a row has a score, or there is no row."""
        return not self.rows or any(row.is_scored or row.reward is not None for row in self.rows)

    def rescored(self, scorer: Scorer) -> RowFile:
        """Return the file with new scores. Rows that cannot be scored become faults."""
        scored, faults = rescored(self.rows, scorer)
        return RowFile(self.name, list(scored.values()), [*self.faults, *faults])


def read_scored(source: str, scorer: Scorer | None, columns: str | None = None) -> RowFile:
    """Return the scored rows of a file. With a scorer, the rows are scored first.

    Raises UsageError when the rows have no rewards and no scorer is given.
    """
    file = read_rows(source, columns)
    if scorer is not None:
        return file.rescored(scorer)
    if not file.has_scores:
        raise OptionError(
            "the rows of {source} have no reward: score them first, or set {recipe}", source=source
        )
    return file


def read_rows(source: str, columns: str | None = None) -> RowFile:
    """Return the rows of a file.

    A row without an id gets its line number as id. A last line that is still being written is left
    out.
    """
    file = RowFile(source)
    rows, faults = file.rows, file.faults
    opened = open_source(source, columns, growing=True)
    try:
        for number, line in opened.lines:
            row = decode_line(line, _ROW)
            if isinstance(row, RolloutError):
                faults.append(RowFault(f"line {number}", str(row)))
                continue
            if row.id is None:
                row = msgspec.structs.replace(row, id=number)
            try:
                _ = row.parsed, row.score, row.signature, row.tokens, row.missing_before, row.error
            except RolloutError as error:
                faults.append(RowFault(str(row.id), str(error)))
                continue
            rows.append(row)
    finally:
        opened.close()
    return file


def rescored(
    rows: Sequence[ScoredRow], scorer: Scorer
) -> tuple[dict[int, ScoredRow], list[RowFault]]:
    """Score rows again. Return the scored rows by position, and the faults of the others."""
    gathered = scorer.gather(rows)
    signature = scorer.signature
    scored: dict[int, ScoredRow] = {}
    faults = []
    for i, (row, score) in enumerate(
        zip(gathered, Scorer(scorer.reward).score_each(gathered), strict=True)
    ):
        if isinstance(row, RolloutError) or isinstance(score, RolloutError):
            error = row if isinstance(row, RolloutError) else score
            faults.append(RowFault(str(rows[i].id), _message(error)))
        else:
            scored[i] = ScoredRow.of(row, score, signature)
    return scored, faults


def _message(error: Any) -> str:
    return f"{error.path}: {error.message}" if error.path else str(error.message)


def advantages(rows: Sequence[ScoredRow], groups: Iterable[Sequence[int]]) -> list[float | None]:
    """Return the z-score of each reward within its group; None without other rewards."""
    zscore_of: list[float | None] = [None] * len(rows)
    for group in groups:
        members = [i for i in group if rows[i].reward is not None]
        if len(members) < 2:
            continue
        values = zscores([value for i in members if (value := rows[i].reward) is not None])
        for i, value in zip(members, values, strict=True):
            zscore_of[i] = value
    return zscore_of


@dataclass(frozen=True)
class Configuration:
    """The recipe and the settings that scored a row; both are empty if they are unknown."""

    recipe: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


UNKNOWN = Configuration()
"""The configuration of a row without a signature."""


class Configurations:
    """Reads configurations from signatures. Each distinct signature is parsed once."""

    def __init__(self) -> None:
        self._configurations: dict[tuple[str, int | None], Configuration] = {}

    def of(self, row: ScoredRow) -> Configuration:
        """Return the configuration of a row from its signature and its training step."""
        key = (row.signature or "", row.step)
        if key not in self._configurations:
            self._configurations[key] = _configuration(*key)
        return self._configurations[key]


def _configuration(text: str, step: int | None) -> Configuration:
    try:
        signature = Signature.parse(text)
        stage = signature.at(step)
        if stage is None:
            return Configuration()
        return Configuration(stage.recipe, recorded_settings(signature, stage))
    except UsageError:
        return Configuration()


def recorded_recipe(row: ScoredRow) -> RecipeSpec:
    """Return the recipe that scored a row. UsageError if its signature does not identify one."""
    if not row.signature:
        raise OptionError("row {row} has no signature: set {recipe}", row=row.id)
    try:
        return recorded_spec(Signature.parse(row.signature))
    except UsageError as error:
        raise OptionError(
            "row {row}: {error}; or set {recipe}", row=row.id, error=str(error)
        ) from None
