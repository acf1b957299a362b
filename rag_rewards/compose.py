"""Combinations of rewards: sums, products, gates, thresholds, and normalization within a group.

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
from typing import Annotated, Any, Literal

from rag_rewards.errors import DataError, check_choice
from rag_rewards.reward import (
    Batch,
    Composite,
    Reward,
    Value,
    as_reward,
    combined,
    scaled,
    with_total,
)
from rag_rewards.rollout import TurnEntries
from rag_rewards.settings import about, check_choices
from rag_rewards.training.advantages import group_advantages, zscores


def number(value: float) -> str:
    """Return a number as short text from which the same number can be read."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def formula(reward: Reward) -> str:
    """Return a reward as part of a formula: the formula of a composite, or the name of a leaf."""
    return f"({reward!r})" if isinstance(reward, Sum) else getattr(reward, "name", repr(reward))


def _per_rollout(
    batch: Batch, parts: Sequence[Reward], function: Callable[[tuple[float, ...]], float]
) -> list[Value]:
    """Return a function of the values of the parts for each rollout; None where one is None."""
    rows: Any = zip(*map(batch.values, parts), strict=True)
    return [None if None in row else function(row) for row in rows]


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
        if all(weight == 1 for weight in weights):
            return _per_rollout(batch, self.parts, math.fsum)
        return _per_rollout(
            batch, self.parts, lambda row: math.fsum(map(operator.mul, weights, row))
        )

    def entries(self, batch: Batch) -> list[TurnEntries]:
        return _weighted_entries(batch, self.terms)


@dataclass(frozen=True, repr=False)
class Product(Composite):
    """Π r_i."""

    factors: tuple[Reward, ...]

    def __repr__(self) -> str:
        return " × ".join(map(formula, self.factors))

    def values(self, batch: Batch) -> list[Value]:
        return _per_rollout(batch, self.factors, math.prod)

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
        return _per_rollout(
            batch, self.of, lambda row: self.value if row.count(1.0) == len(row) else 0.0
        )


@dataclass(frozen=True, repr=False)
class Threshold(Composite):
    """The reward where it is greater than `above`, else 0."""

    reward: Reward
    above: float

    def __repr__(self) -> str:
        inner = formula(self.reward)
        return f"{inner}·1[{inner} > {number(self.above)}]"

    def values(self, batch: Batch) -> list[Value]:
        return _per_rollout(batch, self.parts, lambda row: row[0] if row[0] > self.above else 0.0)


@dataclass(frozen=True, repr=False)
class AtLeast(Composite):
    """1 where the reward is at least `threshold`, else 0."""

    reward: Reward
    threshold: float

    def __repr__(self) -> str:
        return f"1[{formula(self.reward)} ≥ {number(self.threshold)}]"

    def values(self, batch: Batch) -> list[Value]:
        return _per_rollout(batch, self.parts, lambda row: float(row[0] >= self.threshold))


@dataclass(frozen=True, repr=False)
class Clip(Composite):
    """The reward, limited to the range from `low` to `high`."""

    reward: Reward
    low: float
    high: float

    def __repr__(self) -> str:
        return f"clip({formula(self.reward)}, {number(self.low)}, {number(self.high)})"

    def values(self, batch: Batch) -> list[Value]:
        return _per_rollout(batch, self.parts, lambda row: min(max(row[0], self.low), self.high))


@dataclass(frozen=True, repr=False)
class Mean(Composite):
    """(1/n) Σ r_i."""

    of: tuple[Reward, ...]
    label: str = ""

    def __repr__(self) -> str:
        return f"mean({', '.join(map(formula, self.of))})"

    def values(self, batch: Batch) -> list[Value]:
        return _per_rollout(batch, self.of, lambda row: math.fsum(row) / len(row))

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
        return _per_rollout(batch, self.of, lambda row: self.function(*row))


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


# --- normalization within a group ----------------------------------------------------------------

Spreadless = Literal["zero", "one"]


def min_max(
    values: Sequence[float],
    *,
    epsilon: float = 1e-8,
    min_spread: float = 0.0,
    no_spread: Spreadless = "zero",
    floor: float = 0.0,
) -> list[float]:
    """Return R′ = (R − min)/(max − min + ε) for the values R of a group.

    With a floor f, the result is f + (1 − f)·R′, in the range from f to 1. If max − min is at most
    `min_spread`, R′ is 0 or 1 for all values, according to `no_spread`; this includes a single
    value. Source: CTRL-RAG, Eq. 14.

    >>> min_max([1.0, 1.0]), [round(v, 6) for v in min_max([0.0, 1.0, 4.0])]
    ([0.0, 0.0], [0.0, 0.25, 1.0])
    """
    check_choice("no_spread", no_spread, Spreadless)
    if not values:
        return []
    low, high = min(values), max(values)
    if high - low <= min_spread:
        return [1.0 if no_spread == "one" else floor] * len(values)
    scale = high - low + epsilon
    return [floor + (1.0 - floor) * ((value - low) / scale) for value in values]


@dataclass(frozen=True, repr=False)
class _WithinGroup(Composite):
    """Base of the rewards that compare the values of a reward within each group."""

    reward: Reward

    compares_rollouts = True

    def entries(self, batch: Batch) -> list[TurnEntries]:
        """Return the entries of the reward, whose last one changes with the value."""
        columns = batch.entries(self.reward)
        if not any(columns):
            return columns
        return list(map(with_total, columns, batch.values(self)))


@dataclass(frozen=True, repr=False)
@check_choices
class GroupMinMax(_WithinGroup):
    """Min-max scaling of a reward within each group, see `min_max`.

    epsilon               parameter of `min_max`
    single, single_above  a group of one rollout (validation) gets 1 if the reward `single` is
                          greater than `single_above`, else the floor; default: the reward itself
    among                 only rollouts with a positive value of this reward set the minimum and
                          the maximum; the others get 0

    A rollout without a value of the reward or of `among` stays unscored and does not affect its
    group. Source: CTRL-RAG, Eq. 14, which gives 0 in a group of one rollout.
    """

    epsilon: float = 1e-8
    min_spread: Annotated[
        float,
        about(
            "a group has no spread if its maximum minus its minimum is at most this value",
            "CTRL-RAG, Eq. 14: equal values",
            ge=0,
        ),
    ] = 0.0
    no_spread: Annotated[
        Spreadless,
        about(
            "values of a group without spread; zero: 0; one: those of single rollouts",
            "CTRL-RAG, Eq. 14: 0",
        ),
    ] = "zero"
    single: Reward | None = None
    single_above: float = 0.0
    floor: Annotated[
        float, about("value at the minimum of the group", "CTRL-RAG, Eq. 14: 0", ge=0, lt=1)
    ] = 0.0
    among: Reward | None = None
    label: str = ""

    def __repr__(self) -> str:
        among = f" among {formula(self.among)} > 0" if self.among else ""
        options = [
            f", {name} {number(value)}"
            for name, value, default in (
                ("floor", self.floor, 0.0),
                ("min_spread", self.min_spread, 0.0),
                ("ε", self.epsilon, 1e-8),
                ("alone above", self.single_above, 0.0),
            )
            if value != default
        ]
        if self.single:
            options.append(f", alone by {formula(self.single)}")
        if self.no_spread != "zero":
            options.append(f", no_spread {self.no_spread}")
        return f"minmax({formula(self.reward)}{among}{''.join(options)})"

    def values(self, batch: Batch) -> list[Value]:
        values = batch.values(self.reward)
        gate = batch.values(self.among) if self.among else None
        single = batch.values(self.single) if self.single else values
        out: list[Value] = [
            None if v is None or (gate and gate[i] is None) else 0.0 for i, v in enumerate(values)
        ]
        for group in batch.groups:
            members = [i for i in group if out[i] is not None and (not gate or gate[i])]
            rewards = [value for i in members if (value := values[i]) is not None]
            if rewards and (len(group) == 1 or self._lacks_spread(rewards)):
                for i in members:
                    out[i] = self._alone(single[i])
                continue
            scaled = min_max(
                rewards, epsilon=self.epsilon, min_spread=self.min_spread, floor=self.floor
            )
            for i, value in zip(members, scaled, strict=True):
                out[i] = value
        return out

    def _lacks_spread(self, rewards: Sequence[float]) -> bool:
        return self.no_spread == "one" and max(rewards) - min(rewards) <= self.min_spread

    def _alone(self, value: Value) -> Value:
        """Return the value of a rollout that cannot be compared with others."""
        return None if value is None else 1.0 if value > self.single_above else self.floor


@dataclass(frozen=True, repr=False)
class GroupZScore(_WithinGroup):
    """(R − mean)/(std + ε) within each group, with the population standard deviation."""

    epsilon: float = 1e-8

    def __repr__(self) -> str:
        epsilon = f", ε {number(self.epsilon)}" if self.epsilon != 1e-8 else ""
        return f"zscore({formula(self.reward)}{epsilon})"

    def values(self, batch: Batch) -> list[Value]:
        return _per_group(batch, self.reward, lambda v: zscores(v, epsilon=self.epsilon))


@dataclass(frozen=True, repr=False)
class GroupAdvantage(_WithinGroup):
    """(R − mean)/max(std, floor) within each group, with the population standard deviation.

    Source: LEAR, section 3.3, Eq. 11 (clipped standard deviation).
    """

    std_floor: float = 0.1

    def __repr__(self) -> str:
        return f"advantage({formula(self.reward)}, std ≥ {number(self.std_floor)})"

    def values(self, batch: Batch) -> list[Value]:
        return _per_group(
            batch, self.reward, lambda v: group_advantages(v, std_floor=self.std_floor)
        )


def _per_group(
    batch: Batch, reward: Reward, function: Callable[[list[float]], list[float]]
) -> list[Value]:
    values = batch.values(reward)
    out: list[Value] = [None] * len(values)
    for group in batch.groups:
        members = [i for i in group if values[i] is not None]
        scaled = function([v for i in members if (v := values[i]) is not None])
        for i, value in zip(members, scaled, strict=True):
            out[i] = value
    return out
