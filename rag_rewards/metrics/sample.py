"""What was found in a run of rows: numbers by unit, and what could not be measured."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from rag_rewards.errors import RolloutError
from rag_rewards.metrics.metric import Unit


class Fault(msgspec.Struct, kw_only=True):
    """Why some rows (or groups) have no value: how many, and what the first of them said."""

    type: str
    path: str
    count: int
    first: str
    unit: str = "row"


class Faults:
    """Errors, counted by kind and field."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], Fault] = {}

    def add(self, error: RolloutError, where: str, unit: str = "row") -> None:
        path = re.sub(r"\[\d+\]", "[]", error.path)
        key = (type(error).__name__, path or error.message, unit)
        fault = self._known.get(key)
        if fault is None:
            first = (
                f"{where}: {error.path}: {error.message}" if path else f"{where}: {error.message}"
            )
            fault = Fault(type=key[0], path=path, count=0, first=first, unit=unit)
            self._known[key] = fault
        fault.count += 1

    def all(self) -> list[Fault]:
        return list(self._known.values())


@dataclass
class Sample:
    """What one metric measured: its parts as columns, one number per unit.

    `at` says whose they are: positions among the run's rows, or among its groups. `prompts` says
    which of them answer the same prompt: they stand and fall together, and are resampled so.
    """

    at: Sequence[int]
    prompts: Sequence[int]
    columns: Mapping[str, Sequence[float]]

    def __len__(self) -> int:
        return len(self.at)

    def only(self, chosen: Sequence[int]) -> Sample:
        """The chosen units, counted from 0, in this order."""
        columns = {part: [values[i] for i in chosen] for part, values in self.columns.items()}
        at, prompts = ([known[i] for i in chosen] for known in (self.at, self.prompts))
        return Sample(at, prompts, columns)

    def resampled(self) -> tuple[int, Mapping[str, Sequence[float]]]:
        """How many prompts there are, and the columns added up within each."""
        order = {prompt: i for i, prompt in enumerate(dict.fromkeys(self.prompts))}
        if len(order) == len(self.at):
            return len(order), self.columns
        places = [order[prompt] for prompt in self.prompts]
        added: dict[str, Sequence[float]] = {}
        for part, values in self.columns.items():
            sums = [0.0] * len(order)
            for place, value in zip(places, values, strict=True):
                sums[place] += value
            added[part] = sums
        return len(order), added

    @property
    def sums(self) -> dict[str, float]:
        return {part: math.fsum(values) for part, values in self.columns.items()}


@dataclass
class Run:
    """One file of rows, measured."""

    name: str
    rows: int = 0
    truncated: int = 0
    unscored: int = 0
    with_documents: int = 0
    faults: Faults = field(default_factory=Faults)
    ids: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    labels: dict[str, list[str]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    left_out: list[list[Fault]] = field(default_factory=list)

    @cached_property
    def groups(self) -> list[str]:
        """The keys of the groups, in order of first appearance. Not before all rows are read."""
        return list(dict.fromkeys(key for key in self.keys if key is not None))

    @cached_property
    def prompts(self) -> list[int]:
        """Which prompt each row answers: the position of its group, or one of its own."""
        place = {key: at for at, key in enumerate(self.groups)}
        return [-1 - i if key is None else place[key] for i, key in enumerate(self.keys)]

    def name_of(self, unit: Unit, at: int) -> str:
        """The id of a row, or the key of a group."""
        return self.groups[at] if unit == "group" else self.ids[at]
