"""The protocol of metrics. A metric is a small frozen object whose repr identifies it.

A metric converts a row to a few numbers that can be summed (`parts`), and the sums to its values.
Means over rows, their counts and bootstrap resamples are computed from sums only. A group metric
returns a mark per row and converts the marks of a group to parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, TypeGuard

from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import Need
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.text.latex import last_box, plain_latex
from rag_rewards.text.sections import Tags

Parts = Mapping[str, float]
"""Sums by name: `{"right": 3.0, "rows": 4.0}`."""
Values = dict[str, float | None]
"""Values by name. A value is None if its denominator is zero."""
Unit = Literal["row", "group", "pair"]
Gauge = Callable[[ScoredRow], tuple[float, ...]]
Reads = Literal["auto", "answer", "box", "response"]
"""The answer section, the last box, or the response without its thinking section.

`auto` is the first of these that exists, so that runs with different formats can be compared.
"""

ANSWER = Tags(("answer",))


def read_answer(rollout: Rollout, reads: Reads = "auto") -> str | None:
    r"""Return the answer of a response, or None if it has none. LaTeX in a box becomes plain text.

    >>> read_answer(Rollout(response=r"<think>?</think> So \boxed{Rome}.")), read_answer(
    ...     Rollout(response="It is Rome."), "box")
    ('Rome', None)
    """
    response = rollout.parsed
    if reads in ("auto", "answer"):
        section = response.cut(ANSWER).content.get("answer")
        if section is not None or reads == "answer":
            return section
    if reads in ("auto", "box"):
        box = last_box(response.visible)
        if box is not None or reads == "box":
            return plain_latex(box) if box else box
    return response.visible


class AnswerCache:
    """The answers of a few rows, which several metrics share."""

    def __init__(self) -> None:
        self._answers: dict[tuple[int, Reads], tuple[Rollout, str | None]] = {}

    def answer(self, row: Rollout, reads: Reads) -> str | None:
        """Return the answer of a row."""
        key = (id(row), reads)
        if key not in self._answers:
            # The reference keeps the row alive, so that no other row has its id.
            self._answers[key] = (row, read_answer(row, reads))
        return self._answers[key][1]


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
    """A metric that folds marks. Its units are groups, because their rollouts are not independent.

    A metric with the unit `row` folds one mark at a time; its parts can differ between rows.
    """

    def fold(self, marks: Sequence[Any]) -> Parts:
        """Return the parts of one unit. Raises GroupError if the group is too small."""
        ...


def folds(metric: Metric) -> TypeGuard[GroupMetric]:
    """Return whether a metric folds the marks of its units."""
    return hasattr(metric, "fold")


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


def check_k(k: int) -> None:
    """Raise UsageError unless k is at least 1."""
    if k < 1:
        raise UsageError(f"k must be at least 1, found {k}")


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
    """Return the value of a metric for one row, from the result of its gauge."""
    if folds(metric):
        return metric.values(metric.fold([numbers]))[metric.name]
    return metric.values(dict(zip(metric.parts, numbers, strict=True)))[metric.name]
