"""Combinations of rewards: sums, products, gates, thresholds.

    reward = Sum(((1.0, accuracy), (0.1, Gate(format, length))))     # any Reward, any function
    scores = reward(rollouts)

Each combination is a frozen dataclass whose repr is its formula. It has group scope if one of its
parts has it. Its value for a rollout is None if the value of a part is None.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from rag_rewards.errors import DataError
from rag_rewards.reward import Batch, Composite, Reward, Value, as_reward
from rag_rewards.rollout import TurnEntries
from rag_rewards.settings import about


def number(value: float) -> str:
    """Return a number as short text from which the same number can be read."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def formula(reward: Reward) -> str:
    """Return a reward as part of a formula: the formula of a composite, or the name of a leaf."""
    return f"({reward!r})" if isinstance(reward, Sum) else getattr(reward, "name", repr(reward))


@dataclass(frozen=True, repr=False)
class Sum(Composite):
    """Σ w_i · r_i over terms (w_i, r_i)."""

    terms: tuple[tuple[float, Reward], ...]

    def __post_init__(self) -> None:
        terms = tuple((weight, as_reward(part)) for weight, part in self.terms)
        object.__setattr__(self, "terms", terms)
        super().__post_init__()

    def __repr__(self) -> str:
        text = ""
        for weight, part in self.terms:
            size = "" if abs(weight) == 1 else f"{number(abs(weight))}·"
            minus = math.copysign(1.0, weight) < 0  # the weight of −0·cost is negative too
            sign = (" − " if minus else " + ") if text else ("−" if minus else "")
            text += sign + size + formula(part)
        return text or "0"

    def values(self, batch: Batch) -> list[Value]:
        weights = [weight for weight, _ in self.terms]
        columns = [batch.values(part) for part in self.parts]
        if all(weight == 1 for weight in weights):
            return [None if None in row else math.fsum(row) for row in zip(*columns, strict=True)]
        return [
            None if None in row else math.fsum(map(operator.mul, weights, row))
            for row in zip(*columns, strict=True)
        ]

    def entries(self, batch: Batch) -> list[TurnEntries]:
        return _weighted_entries(batch, self.terms)


@dataclass(frozen=True, repr=False)
class Product(Composite):
    """Π r_i."""

    factors: tuple[Reward, ...]

    def __repr__(self) -> str:
        return " × ".join(map(formula, self.factors))

    def values(self, batch: Batch) -> list[Value]:
        columns = [batch.values(part) for part in self.factors]
        return [None if None in row else math.prod(row) for row in zip(*columns, strict=True)]

    def entries(self, batch: Batch) -> list[TurnEntries]:
        """Return the entries of the only factor that has some, times the other factors."""
        columns = [batch.entries(part) for part in self.factors]
        if not any(map(any, columns)):
            return [()] * len(batch.rollouts)
        values = [batch.values(part) for part in self.factors]
        result: list[TurnEntries] = []
        for row, factors in zip(zip(*columns, strict=True), zip(*values, strict=True), strict=True):
            with_turns = [i for i, entries in enumerate(row) if entries]
            if len(with_turns) != 1 or None in factors:
                result.append(())
                continue
            others = [value for i, value in enumerate(factors) if i != with_turns[0]]
            result.append(scaled(row[with_turns[0]], math.prod(v for v in others if v is not None)))
        return result


@dataclass(frozen=True, repr=False)
class Gate(Composite):
    """The reward `then` where the condition is at least `at_least`, else `otherwise`."""

    condition: Reward
    then: Reward
    at_least: float = 1.0
    otherwise: float = 0.0

    def __repr__(self) -> str:
        text = f"[{formula(self.condition)} ≥ {number(self.at_least)}]·{formula(self.then)}"
        return f"{text} else {number(self.otherwise)}" if self.otherwise else text

    def values(self, batch: Batch) -> list[Value]:
        return [
            None if open_ is None else (value if open_ >= self.at_least else self.otherwise)
            for open_, value in zip(
                batch.values(self.condition), batch.values(self.then), strict=True
            )
        ]

    def entries(self, batch: Batch) -> list[TurnEntries]:
        conditions, columns = batch.values(self.condition), batch.entries(self.then)
        return [
            entries if is_open is not None and is_open >= self.at_least else ()
            for is_open, entries in zip(conditions, columns, strict=True)
        ]


@dataclass(frozen=True, repr=False)
class AllOnes(Composite):
    """`value` where every part is 1, else 0. Source: ARENA, section 3.3 (bonus)."""

    of: tuple[Reward, ...]
    value: Annotated[float, about("value where all parts are 1", "ARENA, section 3.3: 10")]
    label: str = ""

    def __repr__(self) -> str:
        return f"{number(self.value)}·[{' = '.join(map(formula, self.of))} = 1]"

    def values(self, batch: Batch) -> list[Value]:
        columns = [batch.values(part) for part in self.of]
        return [
            None if None in row else (self.value if row.count(1.0) == len(row) else 0.0)
            for row in zip(*columns, strict=True)
        ]


@dataclass(frozen=True, repr=False)
class Threshold(Composite):
    """The reward where it is greater than `above`, else 0."""

    reward: Reward
    above: float

    def __repr__(self) -> str:
        inner = formula(self.reward)
        return f"{inner}·1[{inner} > {number(self.above)}]"

    def values(self, batch: Batch) -> list[Value]:
        return [v if v is None or v > self.above else 0.0 for v in batch.values(self.reward)]


@dataclass(frozen=True, repr=False)
class AtLeast(Composite):
    """1 where the reward is at least `threshold`, else 0."""

    reward: Reward
    threshold: float

    def __repr__(self) -> str:
        return f"1[{formula(self.reward)} ≥ {number(self.threshold)}]"

    def values(self, batch: Batch) -> list[Value]:
        return [
            None if v is None else float(v >= self.threshold) for v in batch.values(self.reward)
        ]


@dataclass(frozen=True, repr=False)
class Clip(Composite):
    """The reward, limited to the range from `low` to `high`."""

    reward: Reward
    low: float
    high: float

    def __repr__(self) -> str:
        return f"clip({formula(self.reward)}, {number(self.low)}, {number(self.high)})"

    def values(self, batch: Batch) -> list[Value]:
        return [
            None if v is None else min(max(v, self.low), self.high)
            for v in batch.values(self.reward)
        ]


@dataclass(frozen=True, repr=False)
class Mean(Composite):
    """(1/n) Σ r_i."""

    of: tuple[Reward, ...]
    label: str = ""

    def __repr__(self) -> str:
        return f"mean({', '.join(map(formula, self.of))})"

    def values(self, batch: Batch) -> list[Value]:
        columns = [batch.values(part) for part in self.of]
        n = len(columns)
        return [None if None in row else math.fsum(row) / n for row in zip(*columns, strict=True)]

    def entries(self, batch: Batch) -> list[TurnEntries]:
        return _weighted_entries(batch, [(1 / len(self.of), part) for part in self.of])


@dataclass(frozen=True, repr=False)
class Mapped(Composite):
    """f(r_1, …, r_n) for a plain function of the values of the parts. `text` is the formula."""

    function: Callable[..., float]
    of: tuple[Reward, ...]
    label: str
    text: str

    def __repr__(self) -> str:
        return self.text

    def values(self, batch: Batch) -> list[Value]:
        columns = [batch.values(part) for part in self.of]
        return [None if None in row else self.function(*row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, repr=False)
class Ramp(Composite):
    """The reward with a weight that changes from `start` to `end` over `steps` training steps.

    Raises DataError for a rollout without its training step.
    """

    reward: Reward
    start: float
    end: float
    steps: int

    def __repr__(self) -> str:
        weight = f"({number(self.start)} → {number(self.end)} in {self.steps} steps)"
        return f"{weight}·{formula(self.reward)}"

    def values(self, batch: Batch) -> list[Value]:
        pairs = zip(self._weights(batch), batch.values(self.reward), strict=True)
        return [None if value is None else weight * value for weight, value in pairs]

    def entries(self, batch: Batch) -> list[TurnEntries]:
        pairs = zip(self._weights(batch), batch.entries(self.reward), strict=True)
        return [scaled(entries, weight) for weight, entries in pairs]

    def _weights(self, batch: Batch) -> list[float]:
        return [self.weight(rollout.step) for rollout in batch.rollouts]

    def weight(self, step: int | None) -> float:
        """Return the weight at a training step.

        >>> Ramp(lambda rollout: 1, 0.5, 1.0, 100).weight(50)
        0.75
        """
        if step is None:
            raise DataError("missing: the weight of a component depends on it", "step")
        done = min(max(step / self.steps, 0.0), 1.0)
        return self.start + (self.end - self.start) * done


def weighted(*terms: tuple[float, Any]) -> Sum:
    """Return Σ w_i · r_i over rewards or plain functions.

    >>> def yes(rollout): return 1
    >>> weighted((0.5, yes), (-2, yes))
    0.5·yes − 2·yes
    """
    return Sum(tuple((float(weight), as_reward(part)) for weight, part in terms))


# --- turn entries --------------------------------------------------------------------------------
# A rollout without entries has its reward at its last turn.


def total(entries: Sequence[float | None]) -> float:
    """Return the sum of the entries. None adds nothing.

    >>> total((0.5, None, 1.0))
    1.5
    """
    return math.fsum(entry for entry in entries if entry is not None)


def scaled(entries: TurnEntries, factor: float) -> TurnEntries:
    """Return every entry times a factor.

    >>> scaled((0.5, None, 1.0), 2)
    (1.0, None, 2.0)
    """
    return tuple(None if entry is None else factor * entry for entry in entries)


def with_total(entries: TurnEntries, value: float | None) -> TurnEntries:
    """Return entries with another last one, so that their sum is a value.

    >>> with_total((0.25, None, 1.0), 0.5)
    (0.25, None, 0.25)
    """
    if not entries or value is None:
        return ()
    return (*entries[:-1], value - total(entries[:-1]))


def combined(parts: Sequence[tuple[float, TurnEntries, float | None]]) -> TurnEntries:
    """Return the sum of weighted parts, turn by turn.

    Each part is its weight, its entries and its value. A part without entries has its value at the
    last turn. The result is empty if no part has entries, if a value is None, or if the parts do
    not have the same number of turns.

    >>> combined([(1.0, (0.5, None, 1.0), 1.5), (0.5, (), 2.0)])
    (0.5, None, 2.0)
    """
    lengths = {len(entries) for _, entries, _ in parts if entries}
    if len(lengths) != 1:
        return ()
    sums: list[float | None] = [None] * lengths.pop()
    for weight, entries, value in parts:
        if value is None:
            return ()
        if not entries:
            sums[-1] = (sums[-1] or 0.0) + weight * value
        for i, entry in enumerate(entries):
            if entry is not None:
                sums[i] = (sums[i] or 0.0) + weight * entry
    return tuple(sums)


def _weighted_entries(batch: Batch, terms: Sequence[tuple[float, Reward]]) -> list[TurnEntries]:
    entries = [batch.entries(part) for _, part in terms]
    if not any(map(any, entries)):
        return [()] * len(batch.rollouts)
    values = [batch.values(part) for _, part in terms]
    weights = [weight for weight, _ in terms]
    return [
        combined(list(zip(weights, row, row_values, strict=True)))
        for row, row_values in zip(
            zip(*entries, strict=True), zip(*values, strict=True), strict=True
        )
    ]
