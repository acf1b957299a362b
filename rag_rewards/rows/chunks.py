"""Chunks of the lines of a file, before and after scoring, and totals over scored rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from rag_rewards.errors import RolloutError
from rag_rewards.rollout import Score
from rag_rewards.rows.decisions import decided_as

N = TypeVar("N", int, float)


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a file with their numbers.

    lines     lines as bytes
    numbers   number of each line in its file, from 1
    sizes     number of lines of each group, in order; None if lines are scored one by one
    problems  reason why a group cannot be scored, or "", for each group
    """

    lines: list[bytes]
    numbers: list[int]
    sizes: list[int] | None = None
    problems: list[str] = []

    @property
    def groups(self) -> list[range] | None:
        """The positions of the lines of each group; None if lines are scored one by one."""
        if self.sizes is None:
            return None
        groups: list[range] = []
        start = 0
        for size in self.sizes:
            groups.append(range(start, start + size))
            start += size
        return groups


class Totals(msgspec.Struct, kw_only=True):
    """Counts and sums over scored rows, from which means are computed.

    `error_examples` contains the first message of each type of error. `without_form` counts the
    responses without the part that contains the answer, by a text such as `box, which truthrl
    reads`, and `other_forms` counts them by the recipe whose form they have. `decisions` counts the
    answers by `decisions.decided_as`, `groups` the groups of at least two rewards, and `flat` those
    of equal rewards; a group in two chunks counts as two. `lowest` and `highest` are rewards.
    """

    rows: int = 0
    errors: int = 0
    not_scored: int = 0
    truncated: int = 0
    reward: float = 0.0
    correct: float = 0.0
    judged: int = 0
    decisions: dict[str, int] = {}
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    error_types: dict[str, int] = {}
    error_examples: dict[str, str] = {}
    without_form: dict[str, int] = {}
    other_forms: dict[str, int] = {}
    groups: int = 0
    flat: int = 0
    lowest: float | None = None
    highest: float | None = None

    def add(self, score: Score, truncated: bool) -> None:
        """Add a scored row; `truncated` states whether the response reached the length limit."""
        self.rows += 1
        self.truncated += truncated
        if score.value is None:
            self.not_scored += 1
        else:
            self.reward += score.value
            self._widen(score.value)
        if score.correct is not None:
            self.correct += score.correct
            self.judged += 1
        if decision := decided_as(score.details):
            self.decisions[decision] = self.decisions.get(decision, 0) + 1
        sums, counts = self.sums, self.counts
        for name, value in score.components.items():
            if value is not None:
                sums[name] = sums.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + 1

    def add_error(self, error: RolloutError) -> None:
        """Add one row in error."""
        self.errors += 1
        kind = type(error).__name__
        self.error_types[kind] = self.error_types.get(kind, 0) + 1
        self.error_examples.setdefault(kind, str(error))

    def merge(self, other: Totals) -> None:
        """Add the totals of other rows."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        _add(self.decisions, other.decisions)
        _add(self.sums, other.sums)
        _add(self.counts, other.counts)
        _add(self.error_types, other.error_types)
        _add(self.without_form, other.without_form)
        _add(self.other_forms, other.other_forms)
        self._widen(other.lowest)
        self._widen(other.highest)
        self.error_examples = {**other.error_examples, **self.error_examples}

    def add_group(self, rewards: Sequence[float]) -> None:
        """Add the rewards of a group."""
        if len(rewards) > 1:
            self.groups += 1
            self.flat += min(rewards) == max(rewards)

    def _widen(self, reward: float | None) -> None:
        """Extend the range of the rewards to a reward."""
        if reward is not None:
            self.lowest = reward if self.lowest is None else min(self.lowest, reward)
            self.highest = reward if self.highest is None else max(self.highest, reward)

    def means(self) -> dict[str, float]:
        """Return the mean reward, `correct` and components, each over the rows that have it."""
        scored = self.rows - self.not_scored
        means = {"reward": self.reward / scored} if scored else {}
        if self.judged:
            means["correct"] = self.correct / self.judged
        return means | {name: self.sums[name] / n for name, n in self.counts.items() if n}


_COUNTS = (
    *("rows", "errors", "not_scored", "truncated", "reward", "correct", "judged"),
    *("groups", "flat"),
)


def _add(mine: dict[str, N], other: Mapping[str, N]) -> None:
    for key, value in other.items():
        mine[key] = mine.get(key, 0) + value


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the errors file."""

    line: int
    id: str | None
    error: dict[str, str]
    row: msgspec.Raw

    def __str__(self) -> str:
        """Return the error as one line of text."""
        path = f"{self.error['path']}: " if self.error["path"] else ""
        name = f" (id {self.id})" if self.id and self.id != str(self.line) else ""
        return f"line {self.line}{name}: {self.error['type']}: {path}{self.error['message']}"


class ScoredChunk(msgspec.Struct, kw_only=True):
    """The scored lines and the error records of a chunk, in order, and their totals.

    `numbers` are the line numbers of the scored lines, `ends` the positions in `output` where
    each of them ends.
    """

    output: bytes = b""
    numbers: list[int] = []
    ends: list[int] = []
    errors: list[bytes] = []
    error_numbers: list[int] = []
    totals: Totals = msgspec.field(default_factory=Totals)

    @property
    def first_error(self) -> str:
        """The first row in error as one line of text, at which a run can stop."""
        return str(msgspec.json.decode(self.errors[0], type=ErrorRecord))

    def before_error(self) -> ScoredChunk:
        """Return the scored rows before the first row in error. Their totals are only their number.

        Without rows if the rows are not in the order of their lines.
        """
        first, is_sorted = min(self.error_numbers), self.numbers == sorted(self.numbers)
        rows = bisect_left(self.numbers, first) if is_sorted else 0
        numbers, ends = self.numbers[:rows], self.ends[:rows]
        output = self.output[: max(ends, default=0)]
        return ScoredChunk(output=output, numbers=numbers, ends=ends, totals=Totals(rows=rows))
