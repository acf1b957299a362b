"""Normalization of rewards within a group: min-max scaling, z-scores and advantages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rag_rewards.compose import formula, number
from rag_rewards.reward import Batch, Composite, Reward, Scope, Value
from rag_rewards.training.advantages import group_advantages, zscores


def min_max(
    values: Sequence[float],
    *,
    epsilon: float = 1e-8,
    min_spread: float = 0.0,
    no_spread: Literal["zero", "one"] = "zero",
    floor: float = 0.0,
) -> list[float]:
    """R′ = (R − min)/(max − min + ε) over a group, in [floor, 1].

    A group whose spread is at most `min_spread` is all `no_spread`. With a floor f the result
    is f + (1 − f)·R′. Source: CTRL-RAG, Eq. 14.

    >>> min_max([1.0, 1.0]), [round(v, 6) for v in min_max([0.0, 1.0, 4.0])]
    ([0.0, 0.0], [0.0, 0.25, 1.0])
    """
    if not values:
        return []
    low, high = min(values), max(values)
    if high - low <= min_spread:
        return [1.0 if no_spread == "one" else 0.0] * len(values)
    scale = high - low + epsilon
    return [floor + (1.0 - floor) * ((value - low) / scale) for value in values]


@dataclass(frozen=True, repr=False)
class GroupMinMax(Composite):
    """Min-max scaling within the group.

    A group of one (validation) gets 1 where `single` (default: the reward itself) is above
    `single_above`, else the floor.
    `among` restricts minimum and maximum to the rollouts where that reward is positive; the
    others get 0. Members that are not scored, or not by `among`, are left out and stay so.
    """

    reward: Reward
    epsilon: float = 1e-8
    min_spread: float = 0.0
    no_spread: Literal["zero", "one"] = "zero"
    single: Reward | None = None
    single_above: float = 0.0
    floor: float = 0.0
    among: Reward | None = None
    label: str = ""

    @property
    def parts(self) -> tuple[Reward, ...]:
        return tuple(part for part in (self.reward, self.single, self.among) if part)

    @property
    def name(self) -> str:
        return self.label or repr(self)

    @property
    def scope(self) -> Scope:
        return "group"

    def __repr__(self) -> str:
        among = f" among {formula(self.among)} > 0" if self.among else ""
        said = [
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
            said.append(f", alone by {formula(self.single)}")
        if self.no_spread != "zero":
            said.append(f", no_spread {self.no_spread}")
        return f"minmax({formula(self.reward)}{among}{''.join(said)})"

    def values(self, batch: Batch) -> list[Value]:
        values = batch.values(self.reward)
        gate = batch.values(self.among) if self.among else None
        single = batch.values(self.single) if self.single else values
        out: list[Value] = [
            None if v is None or (gate and gate[i] is None) else 0.0 for i, v in enumerate(values)
        ]
        for group in batch.groups:
            members = [i for i in group if out[i] is not None and (not gate or gate[i])]
            known = [value for i in members if (value := values[i]) is not None]
            if len(group) == 1 and known:
                alone = single[group[0]]
                above = None if alone is None else alone > self.single_above
                out[group[0]] = None if above is None else (1.0 if above else self.floor)
                continue
            scaled = min_max(
                known,
                epsilon=self.epsilon,
                min_spread=self.min_spread,
                no_spread=self.no_spread,
                floor=self.floor,
            )
            for i, value in zip(members, scaled, strict=True):
                out[i] = value
        return out


@dataclass(frozen=True, repr=False)
class GroupZScore(Composite):
    """(R − mean)/(std + ε) within the group, population std."""

    reward: Reward
    epsilon: float = 1e-8

    @property
    def parts(self) -> tuple[Reward, ...]:
        return (self.reward,)

    @property
    def scope(self) -> Scope:
        return "group"

    def __repr__(self) -> str:
        epsilon = f", ε {number(self.epsilon)}" if self.epsilon != 1e-8 else ""
        return f"zscore({formula(self.reward)}{epsilon})"

    def values(self, batch: Batch) -> list[Value]:
        return _per_group(batch, self.reward, lambda v: zscores(v, epsilon=self.epsilon))


@dataclass(frozen=True, repr=False)
class GroupAdvantage(Composite):
    """(R − mean)/max(std, floor) within the group, population std (LEAR's clipped std)."""

    reward: Reward
    std_floor: float = 0.1

    @property
    def parts(self) -> tuple[Reward, ...]:
        return (self.reward,)

    @property
    def scope(self) -> Scope:
        return "group"

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
