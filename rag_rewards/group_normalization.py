"""Normalization of rewards within a group: min-max scaling, z-scores and advantages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from rag_rewards.compose import formula, number, with_total
from rag_rewards.errors import check_choice
from rag_rewards.reward import Batch, Composite, Reward, Value
from rag_rewards.rollout import TurnEntries
from rag_rewards.settings import about, check_choices
from rag_rewards.training.advantages import group_advantages, zscores

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
@check_choices
class GroupMinMax(Composite):
    """Min-max scaling of a reward within each group, see `min_max`.

    epsilon               parameter of `min_max`
    single, single_above  a group of one rollout (validation) gets 1 if the reward `single` is
                          greater than `single_above`, else the floor; default: the reward itself
    among                 only rollouts with a positive value of this reward set the minimum and
                          the maximum; the others get 0

    A rollout without a value of the reward or of `among` stays unscored and does not affect its
    group. Source: CTRL-RAG, Eq. 14, which gives 0 in a group of one rollout.
    """

    reward: Reward
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

    compares_rollouts = True

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

    def entries(self, batch: Batch) -> list[TurnEntries]:
        return _rescaled(batch, self.reward, batch.values(self))


@dataclass(frozen=True, repr=False)
class GroupZScore(Composite):
    """(R − mean)/(std + ε) within each group, with the population standard deviation."""

    reward: Reward
    epsilon: float = 1e-8

    compares_rollouts = True

    def __repr__(self) -> str:
        epsilon = f", ε {number(self.epsilon)}" if self.epsilon != 1e-8 else ""
        return f"zscore({formula(self.reward)}{epsilon})"

    def values(self, batch: Batch) -> list[Value]:
        return _per_group(batch, self.reward, lambda v: zscores(v, epsilon=self.epsilon))

    def entries(self, batch: Batch) -> list[TurnEntries]:
        return _rescaled(batch, self.reward, batch.values(self))


@dataclass(frozen=True, repr=False)
class GroupAdvantage(Composite):
    """(R − mean)/max(std, floor) within each group, with the population standard deviation.

    Source: LEAR, section 3.3, Eq. 11 (clipped standard deviation).
    """

    reward: Reward
    std_floor: float = 0.1

    compares_rollouts = True

    def __repr__(self) -> str:
        return f"advantage({formula(self.reward)}, std ≥ {number(self.std_floor)})"

    def values(self, batch: Batch) -> list[Value]:
        return _per_group(
            batch, self.reward, lambda v: group_advantages(v, std_floor=self.std_floor)
        )

    def entries(self, batch: Batch) -> list[TurnEntries]:
        return _rescaled(batch, self.reward, batch.values(self))


def _rescaled(batch: Batch, reward: Reward, values: list[Value]) -> list[TurnEntries]:
    """Return the entries of a reward whose last one changes with the value."""
    columns = batch.entries(reward)
    if not any(columns):
        return columns
    return [with_total(row, value) for row, value in zip(columns, values, strict=True)]


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
