"""Sums to values with bootstrap intervals."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from rag_rewards.errors import OptionError
from rag_rewards.metrics.bootstrap import intervals
from rag_rewards.metrics.metric import Metric, Parts, Values
from rag_rewards.metrics.sample import Fault, Sample


class Value(msgspec.Struct, frozen=True):
    """A number with its bootstrap interval; None where nothing was there to divide by."""

    value: float | None
    low: float | None = None
    high: float | None = None


class MetricReport(msgspec.Struct, kw_only=True):
    """A metric's values, the counts behind them, and what was left out.

    `units` are rows, groups or pairs; `prompts` is how many were resampled.
    """

    metric: str
    unit: str
    units: int
    prompts: int
    values: dict[str, Value]
    counts: dict[str, float]
    left_out: list[Fault] = []


@dataclass(frozen=True)
class Resampling:
    """How intervals are made."""

    resamples: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.resamples < 2:
            raise OptionError("{resamples} must be at least 2, found {n}", n=self.resamples)


def summarise(
    metrics: Sequence[Metric], samples: Sequence[Sample], resampling: Resampling
) -> list[MetricReport]:
    """The values of samples of one run. Those of equally many prompts share their resamples."""
    reports = []
    together: dict[int, list[tuple[int, Mapping[str, Sequence[float]]]]] = defaultdict(list)
    for i, (metric, sample) in enumerate(zip(metrics, samples, strict=True)):
        prompts, columns = sample.resampled()
        reports.append(_point(metric, sample, prompts))
        together[prompts].append((i, columns))
    for prompts, alike in together.items():
        wanted = [(metrics[i].values, columns) for i, columns in alike]
        drawn = intervals_of(wanted, resampling) if prompts else []
        for (i, _), found in zip(alike, drawn, strict=False):
            values = reports[i].values
            for name, ends in found.items():
                if ends is not None:
                    values[name] = Value(values[name].value, *ends)
    return reports


def _point(metric: Metric, sample: Sample, prompts: int) -> MetricReport:
    sums = sample.sums
    return MetricReport(
        metric=repr(metric),
        unit=metric.unit,
        units=len(sample),
        prompts=prompts,
        values={name: Value(value) for name, value in metric.values(sums).items()},
        counts=sums,
    )


Statistic = Callable[[Parts], Values]


def intervals_of(
    wanted: Sequence[tuple[Statistic, Mapping[str, Sequence[float]]]], resampling: Resampling
) -> list[dict[str, tuple[float, float] | None]]:
    """Intervals of statistics over named columns, equal columns added up once."""
    place: dict[bytes, int] = {}
    columns: list[Sequence[float]] = []
    statistics = []
    for statistic, named in wanted:
        at = {}
        for part, values in named.items():
            digest = array("d", values).tobytes()
            if digest not in place:
                place[digest] = len(columns)
                columns.append(values)
            at[part] = place[digest]
        statistics.append(_over(statistic, at))
    return intervals(columns, statistics, resamples=resampling.resamples, seed=resampling.seed)


def _over(
    statistic: Statistic, at: Mapping[str, int]
) -> Callable[[Sequence[float]], dict[str, float | None]]:
    return lambda sums: statistic({part: sums[i] for part, i in at.items()})
