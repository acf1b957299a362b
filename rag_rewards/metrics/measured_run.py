"""A measured file of rows: the parts of each metric by unit, and the errors."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.metrics.metric import Unit


class ErrorCount(msgspec.Struct, kw_only=True):
    """A kind of error: how many rows (or groups) have it, and the first one."""

    type: str
    path: str
    count: int
    first: str
    unit: str = "row"


class ErrorCounter:
    """Counts errors by type and field."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], ErrorCount] = {}

    def add(self, error: RolloutError, where: str, unit: str = "row") -> None:
        """Count an error. Positions in lists are ignored: `nli[1]` and `nli[2]` are one field."""
        path = re.sub(r"\[\d+\]", "[]", error.path)
        key = (type(error).__name__, path or error.message, unit)
        count = self._counts.get(key)
        if count is None:
            field = f"{error.path}: " if path else ""
            first = f"{where}: {field}{error.message}"
            count = ErrorCount(type=key[0], path=path, count=0, first=first, unit=unit)
            self._counts[key] = count
        count.count += 1

    def merge(self, other: ErrorCounter) -> None:
        """Add the errors of another counter."""
        for key, count in other._counts.items():
            own = self._counts.setdefault(key, count)
            if own is not count:
                own.count += count.count

    def counts(self) -> list[ErrorCount]:
        """Return the errors by type and field."""
        return list(self._counts.values())


@dataclass
class Measurements:
    """The parts of one metric as columns, with one number per unit.

    `units` are the positions of the units among the rows or groups of the run. `prompts` are the
    prompts of the units: units of the same prompt are not independent and are resampled together.
    """

    units: Sequence[int]
    prompts: Sequence[int]
    columns: Mapping[str, Sequence[float]]

    def __len__(self) -> int:
        return len(self.units)

    def subset(self, chosen: Sequence[int]) -> Measurements:
        """Return some of the units, given by their numbers from 0, in this order."""
        columns = {part: [values[i] for i in chosen] for part, values in self.columns.items()}
        units = [self.units[i] for i in chosen]
        return Measurements(units, [self.prompts[i] for i in chosen], columns)

    def by_prompt(self) -> tuple[int, Mapping[str, Sequence[float]]]:
        """Return the number of prompts, and the columns summed by prompt."""
        order = {prompt: i for i, prompt in enumerate(dict.fromkeys(self.prompts))}
        if len(order) == len(self.units):
            return len(order), self.columns
        places = [order[prompt] for prompt in self.prompts]
        columns: dict[str, Sequence[float]] = {}
        for part, values in self.columns.items():
            sums = [0.0] * len(order)
            for place, value in zip(places, values, strict=True):
                sums[place] += value
            columns[part] = sums
        return len(order), columns

    @property
    def sums(self) -> dict[str, float]:
        """The sum of each column. Raises UsageError if it is too large for a number."""
        sums = {}
        for part, values in self.columns.items():
            try:
                sums[part] = math.fsum(values)
            except OverflowError:
                raise UsageError(
                    f"the sum of a metric ({part}) is too large for a number: leave out the rows "
                    "with values near 1e308"
                ) from None
        return sums


@dataclass
class MeasuredRun:
    """A measured file of rows."""

    name: str
    rows: int = 0
    truncated: int = 0
    unscored: int = 0
    with_documents: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    """The counts of the decisions on answers that the rows state, see `rows.decisions`."""
    errors: ErrorCounter = field(default_factory=ErrorCounter)
    ids: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    labels: dict[str, list[str]] = field(default_factory=dict)
    measurements: list[Measurements] = field(default_factory=list)
    """One entry per metric."""
    left_out: list[list[ErrorCount]] = field(default_factory=list)
    """The errors of each metric."""

    @cached_property
    def groups(self) -> list[str]:
        """The keys of the groups in the order of their first row. Only valid after the last row."""
        return list(dict.fromkeys(key for key in self.keys if key is not None))

    @cached_property
    def prompts(self) -> list[int]:
        """The prompt of each row: the position of its group, or a number of its own."""
        place = {key: at for at, key in enumerate(self.groups)}
        return [-1 - i if key is None else place[key] for i, key in enumerate(self.keys)]

    def name_of(self, unit: Unit, at: int) -> str:
        """Return the id of a row or the key of a group."""
        return self.groups[at] if unit == "group" else self.ids[at]
