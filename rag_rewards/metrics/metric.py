"""What a metric is: a small frozen object whose repr is its identity.

A metric turns a row into a few numbers that can be added up (`parts`), and sums of them into its
values. Nothing else is left for the engine: a mean over rows, a count behind it and a resample of
the rows are all sums. Group metrics leave a mark per row and fold the marks of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, Protocol

from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.reading import Common
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow

Parts = Mapping[str, float]
"""Sums by name: `{"right": 3.0, "rows": 4.0}`."""
Values = dict[str, float | None]
"""What a metric says; None where nothing was there to divide by."""
Unit = Literal["row", "group", "pair"]


class Metric(Protocol):
    """What every metric has. Its values lie between 0 and 1 unless it says otherwise."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> Unit: ...
    def needs(self, rollout: Rollout) -> Sequence[Need]:
        """What only a model can say about a rollout."""
        ...

    def gauge(self, common: Common) -> Callable[[ScoredRow], Any]:
        """A function that measures one of a few rows, which have some work in common.

        Of row metrics it gives one number per name in `parts`. RolloutError where a row cannot
        be measured: it is counted, and enters no sum.
        """
        ...

    def values(self, sums: Parts) -> Values:
        """The metric, from sums over all units. Its own name comes first."""
        ...


class RowMetric(Metric, Protocol):
    """Rows are the units that are added up and resampled (pairs of rows, for unit `pair`)."""

    @property
    def parts(self) -> tuple[str, ...]: ...


class GroupMetric(Metric, Protocol):
    """Groups are: rollouts of one prompt succeed and fail together."""

    def fold(self, marks: Sequence[Any]) -> Parts:
        """The parts of one group. GroupError where the group is too small."""
        ...


def identity(metric: Any) -> str:
    """A metric's name with the settings that are not the default: what `metric_of` reads.

    >>> from rag_rewards.metrics import F1, PassAtK
    >>> F1(), F1(normalizer="triviaqa"), PassAtK(4, verifier="substring")
    (f1, f1(normalizer=triviaqa), pass@4(verifier=substring))
    """
    said = [
        f"{field.name}={_plain(value)}"
        for field in fields(metric)
        if field.name != "k" and (value := getattr(metric, field.name)) != field.default
    ]
    return f"{metric.name}({','.join(said)})" if said else str(metric.name)


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def ratio(numerator: float, denominator: float) -> float | None:
    """A quotient, None where there is nothing to divide by."""
    return numerator / denominator if denominator else None


def f1_of(precision: float | None, recall: float | None) -> float | None:
    """2PR / (P + R); 0 where one of them is 0 or has no denominator, None where neither has one.

    >>> f1_of(0.5, 1.0), f1_of(None, 0.5), f1_of(None, None)
    (0.6666666666666666, 0.0, None)
    """
    if precision is None and recall is None:
        return None
    if not precision or not recall:
        return 0.0
    return 2 * precision * recall / (precision + recall)
