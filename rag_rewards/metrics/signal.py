"""What GRPO can learn from: the spread of rewards within groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_rewards.errors import DataError, GroupError
from rag_rewards.metrics.answers import asks_nothing
from rag_rewards.metrics.metric import Parts, Unit, Values, identity, ratio
from rag_rewards.metrics.reading import Common
from rag_rewards.rows import ScoredRow
from rag_rewards.training.advantages import mean_std

Scored = dict[str, float | None]


def spread(values: Sequence[float]) -> tuple[bool, float]:
    """(whether all are equal, population standard deviation) of a group's rewards.

    >>> spread([1.0, 1.0]), spread([0.0, 1.0])
    ((True, 0.0), (False, 0.5))
    """
    return min(values) == max(values), mean_std(values)[1]


@dataclass(frozen=True, repr=False)
class GroupSignal:
    """Share of groups without reward spread, and the mean within-group standard deviation.

    Of the reward and of every component, from scored rows. A group without spread gives no
    gradient. Standard deviations are population ones, 0 or more. Groups of one scored rollout are
    left out and counted. Source: GRPO's advantage; LEAR, section 3.3.
    """

    name = "group-signal"
    unit: ClassVar[Unit] = "group"
    needs = asks_nothing
    __repr__ = identity

    def gauge(self, common: Common) -> Callable[[ScoredRow], Scored]:
        return scores_of

    def fold(self, marks: Sequence[Scored]) -> Parts:
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
        found = {
            self.name: ratio(sums.get("reward:flat", 0.0), groups),
            "std": ratio(sums.get("reward:std", 0.0), groups),
        }
        for part, groups in sums.items():
            component = part.removesuffix(":groups")
            if component not in (part, "reward"):
                found[f"{component}.flat"] = ratio(sums[f"{component}:flat"], groups)
                found[f"{component}.std"] = ratio(sums[f"{component}:std"], groups)
        return found


def scores_of(row: ScoredRow) -> Scored:
    """A row's reward and components. DataError where it was not scored."""
    if row.reward is None:
        message = (
            "the row is in error" if row.error is not None else "missing: score the rows first"
        )
        raise DataError(message, "reward")
    return {"reward": row.reward, **(row.components or {})}
