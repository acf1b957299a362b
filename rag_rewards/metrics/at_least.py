"""The share of rows for which a metric is at least a threshold: `f1>=0.62`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.answer_text import AnswerCache
from rag_rewards.metrics.metric import Gauge, MetricBase, RowMetric
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow


@dataclass(frozen=True, repr=False)
class AtLeast(MetricBase):
    """(1/N) Σ 1[the value of a metric for the row ≥ threshold]. Range 0 to 1.

    Rows for which the metric has no value are excluded. Raises UsageError for a metric that has no
    value for a single row.

    >>> from rag_rewards.metrics import F1
    >>> AtLeast(F1(), 0.62)
    f1>=0.62
    """

    metric: RowMetric
    threshold: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise UsageError(f"{self.metric!r}: the threshold must be a finite number")
        if self.metric.unit != "row":
            raise UsageError(
                f"{self!r}: {self.metric!r} has one value per {self.metric.unit}: choose a metric "
                "with a value for each row, such as f1"
            )

    @property
    def name(self) -> str:
        return repr(self)

    @property
    def reads_response(self) -> bool:  # type: ignore[override]
        return self.metric.reads_response

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        return self.metric.needs(rollout)

    def gauge(self, cache: AnswerCache) -> Gauge:
        gauge = self.metric.gauge(cache)

        def measure(row: ScoredRow) -> tuple[float, ...]:
            value = row_value(self.metric, gauge(row))
            return (0.0, 0.0) if value is None else (float(value >= self.threshold), 1.0)

        return measure

    def __repr__(self) -> str:
        return f"{self.metric!r}>={self.threshold!r}"


def row_value(metric: RowMetric, numbers: Sequence[float]) -> float | None:
    """Return the value of a metric for one row, from the numbers of its gauge."""
    return metric.values(dict(zip(metric.parts, numbers, strict=True)))[metric.name]
