"""Metrics of scored rows: the mean of a value, and the spread of rewards within a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rag_rewards.errors import DataError, GroupError
from rag_rewards.metrics.metric import AnswerCache, Gauge, MetricBase, Parts, Values, ratio
from rag_rewards.rows import ScoredRow
from rag_rewards.training.advantages import mean_std

Rewards = dict[str, float | None]
"""The reward and the components of a row by name."""


@dataclass(frozen=True, repr=False)
class ScoreValue(MetricBase):
    """(1/N) Σ value over the rows that have the value. The range is that of the value.

    field  `reward`, `correct`, or `components.NAME`

    A row without the value (null) is not counted. A row without the field is excluded.

    >>> ScoreValue("components.accuracy")
    components.accuracy
    """

    field: str

    reads_response = False

    @property
    def name(self) -> str:
        return self.field

    def __repr__(self) -> str:
        return self.field

    def gauge(self, cache: AnswerCache) -> Gauge:
        def measure(row: ScoredRow) -> tuple[float, ...]:
            value = self._value(row)
            return (0.0, 0.0) if value is None else (value, 1.0)

        return measure

    def _value(self, row: ScoredRow) -> float | None:
        if self.field == "reward":
            is_present, value = row.reward is not None or row.is_scored, row.reward
        elif self.field == "correct":
            is_present, value = row.correct is not None or row.is_scored, row.correct
        else:
            name = self.field.removeprefix("components.")
            components = row.components or {}
            is_present, value = name in components, components.get(name)
        if not is_present and row.components and self.field.startswith("components."):
            names = ", ".join(row.components)
            raise DataError(f"missing: the row has the components {names}", self.field)
        if not is_present:
            raise DataError("missing: score the rows first", self.field)
        return value


def spread(values: Sequence[float]) -> tuple[bool, float]:
    """Return whether all rewards of a group are equal, and their population standard deviation.

    >>> spread([1.0, 1.0]), spread([0.0, 1.0])
    ((True, 0.0), (False, 0.5))
    """
    return min(values) == max(values), mean_std(values)[1]


@dataclass(frozen=True, repr=False)
class GroupSignal(MetricBase):
    """Share of groups without reward spread, and the mean within-group standard deviation.

    There are values for the reward and for each component of scored rows. A group without spread
    gives no gradient. Standard deviations are population standard deviations, at least 0. Groups
    with one scored rollout are excluded and counted. Source: GRPO's advantage; LEAR, Eq. 10.
    """

    name = "group-signal"
    unit = "group"

    def gauge(self, cache: AnswerCache) -> Callable[[ScoredRow], Rewards]:
        return rewards_of

    def fold(self, marks: Sequence[Rewards]) -> Parts:
        if len(marks) < 2:
            raise GroupError("fewer than 2 scored rollouts")
        parts: dict[str, float] = {}
        for name in dict.fromkeys(name for mark in marks for name in mark):
            values = [value for mark in marks if (value := mark.get(name)) is not None]
            if len(values) > 1:
                flat, std = spread(values)
                parts |= {f"{name}:groups": 1.0, f"{name}:flat": float(flat), f"{name}:std": std}
        return parts

    def values(self, sums: Parts) -> Values:
        groups = sums.get("reward:groups", 0.0)
        values = {
            self.name: ratio(sums.get("reward:flat", 0.0), groups),
            "std": ratio(sums.get("reward:std", 0.0), groups),
        }
        for part, groups in sums.items():
            component = part.removesuffix(":groups")
            if component not in (part, "reward"):
                values[f"{component}.flat"] = ratio(sums[f"{component}:flat"], groups)
                values[f"{component}.std"] = ratio(sums[f"{component}:std"], groups)
        return values


def rewards_of(row: ScoredRow) -> Rewards:
    """Return the reward and the components of a row. Raises DataError for an unscored row."""
    if row.reward is None:
        message = (
            "the row is in error" if row.error is not None else "missing: score the rows first"
        )
        raise DataError(message, "reward")
    return {"reward": row.reward, **(row.components or {})}
