"""The protocol of metrics. A metric is a small frozen object whose repr identifies it.

A metric converts a row to a few numbers that can be summed (`parts`), and the sums to its values.
Means over rows, their counts and bootstrap resamples are computed from sums only. A group metric
returns a mark per row and converts the marks of a group to parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.answer_text import AnswerCache
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow

Parts = Mapping[str, float]
"""Sums by name: `{"right": 3.0, "rows": 4.0}`."""
Values = dict[str, float | None]
"""Values by name. A value is None if its denominator is zero."""
Unit = Literal["row", "group", "pair"]
Gauge = Callable[[ScoredRow], tuple[float, ...]]


class Metric(Protocol):
    """The interface of all metrics. Values are from 0 to 1 unless the metric states otherwise."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> Unit: ...
    @property
    def reads_response(self) -> bool:
        """Whether a row must have a response."""
        ...

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        """Return the evidence that the metric requires for a rollout."""
        ...

    def gauge(self, cache: AnswerCache) -> Callable[[ScoredRow], Any]:
        """Return a function that measures one of a few rows, which share the cache.

        For a row metric, the function returns one number per name in `parts`. It raises
        RolloutError for a row that cannot be measured: the row is counted and excluded.
        """
        ...

    def values(self, sums: Parts) -> Values:
        """Return the values from sums over all units, the value with the metric's name first."""
        ...


class RowMetric(Metric, Protocol):
    """A metric whose units are rows, or pairs of rows for the unit `pair`."""

    @property
    def parts(self) -> tuple[str, ...]: ...


class GroupMetric(Metric, Protocol):
    """A metric whose units are groups: the rollouts of one prompt are not independent."""

    def fold(self, marks: Sequence[Any]) -> Parts:
        """Return the parts of one group. Raises GroupError if the group is too small."""
        ...


class MetricBase:
    """The defaults of metrics: rows are the units, no evidence is needed, values are ratios."""

    unit: ClassVar[Unit] = "row"
    reads_response: ClassVar[bool] = True
    parts: ClassVar[tuple[str, ...]] = ("right", "rows")
    main_ratio: ClassVar[tuple[str, str]] = ("right", "rows")
    """Numerator and denominator of the value with the metric's name, as names of sums."""
    further_ratios: ClassVar[Mapping[str, tuple[str, str]]] = MappingProxyType({})
    """Numerators and denominators of further values by name."""

    @property
    def name(self) -> str:
        raise NotImplementedError

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        return ()

    @property
    def ratios(self) -> Mapping[str, tuple[str, str]]:
        """Numerator and denominator of each value by its name, as names of sums."""
        return {self.name: self.main_ratio, **self.further_ratios}

    def values(self, sums: Parts) -> Values:
        return {
            name: ratio(sums.get(numerator, 0.0), sums.get(denominator, 0.0))
            for name, (numerator, denominator) in self.ratios.items()
        }

    def __repr__(self) -> str:
        """Return the name with the settings that differ from the defaults, for `metric_of`.

        >>> from rag_rewards.metrics import F1, PassAtK
        >>> F1(), F1(normalizer="triviaqa"), PassAtK(4, verifier="substring")
        (f1, f1(normalizer=triviaqa), pass@4(verifier=substring))
        """
        settings = [
            f"{field.name}={_plain(value)}"
            for field in fields(self)  # type: ignore[arg-type]
            if field.name != "k" and (value := getattr(self, field.name)) != field.default
        ]
        return f"{self.name}({','.join(settings)})" if settings else self.name


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def ratio(numerator: float, denominator: float) -> float | None:
    """Return a quotient, or None if the denominator is zero."""
    return numerator / denominator if denominator else None


def f1_of(precision: float | None, recall: float | None) -> float | None:
    """Return 2PR / (P + R); 0 if one of them is 0 or None, None if both are None.

    >>> f1_of(0.5, 1.0), f1_of(None, 0.5), f1_of(None, None)
    (0.6666666666666666, 0.0, None)
    """
    if precision is None and recall is None:
        return None
    if not precision or not recall:
        return 0.0
    return 2 * precision * recall / (precision + recall)
