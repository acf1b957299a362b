"""The values of metrics with bootstrap intervals, from measurements."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from rag_rewards.errors import OptionError
from rag_rewards.metrics.bootstrap import intervals
from rag_rewards.metrics.measured_run import ErrorCount, Measurements
from rag_rewards.metrics.metric import Metric, Parts, Values


class Value(msgspec.Struct, frozen=True):
    """A number with its bootstrap interval, or None if its denominator is zero."""

    value: float | None
    low: float | None = None
    high: float | None = None


class MetricReport(msgspec.Struct, kw_only=True):
    """The values of a metric, the sums behind them, and the errors of excluded units.

    `units` is the number of rows, groups or pairs, and `prompts` the number of resampled prompts.
    """

    metric: str
    unit: str
    units: int
    prompts: int
    values: dict[str, Value]
    counts: dict[str, float]
    left_out: list[ErrorCount] = []


@dataclass(frozen=True)
class Resampling:
    """The number and the seed of the bootstrap resamples."""

    resamples: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.resamples < 2:
            raise OptionError("{resamples} must be at least 2, found {n}", n=self.resamples)


def summarize(
    metrics: Sequence[Metric], measured: Sequence[Measurements], resampling: Resampling
) -> list[MetricReport]:
    """Return the values of several metrics. Metrics with equally many prompts share resamples."""
    reports = []
    by_size: dict[int, list[tuple[int, Mapping[str, Sequence[float]]]]] = defaultdict(list)
    for i, (metric, measurements) in enumerate(zip(metrics, measured, strict=True)):
        prompts, columns = measurements.by_prompt()
        reports.append(_report(metric, measurements, prompts))
        by_size[prompts].append((i, columns))
    for prompts, members in by_size.items():
        statistics = [(metrics[i].values, columns) for i, columns in members]
        ends_by_name = intervals_of(statistics, resampling) if prompts else []
        for (i, _), by_name in zip(members, ends_by_name, strict=False):
            values = reports[i].values
            for name, ends in by_name.items():
                if ends is not None:
                    values[name] = Value(values[name].value, *ends)
    return reports


def _report(metric: Metric, measurements: Measurements, prompts: int) -> MetricReport:
    """The report without intervals."""
    sums = measurements.sums
    return MetricReport(
        metric=repr(metric),
        unit=metric.unit,
        units=len(measurements),
        prompts=prompts,
        values={name: Value(value) for name, value in metric.values(sums).items()},
        counts=sums,
    )


Statistic = Callable[[Parts], Values]


def intervals_of(
    statistics: Sequence[tuple[Statistic, Mapping[str, Sequence[float]]]], resampling: Resampling
) -> list[dict[str, tuple[float, float] | None]]:
    """Return the intervals of statistics over named columns. Equal columns are summed once."""
    positions: dict[bytes, int] = {}
    columns: list[Sequence[float]] = []
    functions = []
    for statistic, named in statistics:
        places = {}
        for part, values in named.items():
            digest = array("d", values).tobytes()
            if digest not in positions:
                positions[digest] = len(columns)
                columns.append(values)
            places[part] = positions[digest]
        functions.append(_over(statistic, places))
    return intervals(columns, functions, resamples=resampling.resamples, seed=resampling.seed)


def _over(
    statistic: Statistic, places: Mapping[str, int]
) -> Callable[[Sequence[float]], dict[str, float | None]]:
    return lambda sums: statistic({part: sums[i] for part, i in places.items()})
