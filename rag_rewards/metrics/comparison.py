"""Compare two runs: rows are joined on `id`, groups on their key, and resampled together.

A question that is hard in one run is usually hard in the other. A paired interval of the difference
is therefore narrower than the intervals of the two values suggest. Both runs are resampled with the
same weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.metrics.intervals import (
    Interval,
    MetricReport,
    Resampling,
    intervals_of,
    summarize,
)
from rag_rewards.metrics.measurement import MeasuredRun, Measurements
from rag_rewards.metrics.metric import Metric, Parts, Unit, Values


class RunAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """The number of units whose value is 1 in both runs, in one run only, and in neither run.

    Source: LEAR, Figure 2.
    """

    both: int
    only_base: int
    only_other: int
    neither: int


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A value of both runs over their common units, and other − base with its interval.

    `holds` is true if 0 lies outside the interval, and None without an interval. `agreement` is
    None for a value that is not the share of the units with the value 1.
    """

    metric: str
    name: str
    units: int
    base: float | None
    other: float | None
    difference: float | None
    low: float | None = None
    high: float | None = None
    holds: bool | None = None
    agreement: RunAgreement | None = None


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """The number of ids in both runs, in one run only, and twice in a run (not joined)."""

    shared: int
    only_base: int
    only_other: int
    twice: int


class Comparison(msgspec.Struct, kw_only=True):
    """The overlap of two runs and the differences of their values."""

    base: str
    other: str
    rows: Overlap
    groups: Overlap
    differences: list[Difference]


def compare(
    base: MeasuredRun,
    other: MeasuredRun,
    metrics: Sequence[Metric],
    chosen: Sequence[int],
    resampling: Resampling,
) -> Comparison:
    """Compare the chosen metrics over the rows or groups that were measured in both runs."""
    pairs = [_pair(base, other, metrics[i], i) for i in chosen]
    statistics = [(pair.differences, pair.measurements.by_prompt()[1]) for pair in pairs]
    ends = intervals_of(statistics, resampling)
    reports = [pair.report(own_ends) for pair, own_ends in zip(pairs, ends, strict=True)]
    return Comparison(
        base=base.name,
        other=other.name,
        rows=overlap(base.ids, other.ids),
        groups=overlap(base.groups, other.groups),
        differences=list(chain.from_iterable(reports)),
    )


def overlap(base: Sequence[str], other: Sequence[str]) -> Overlap:
    """Return the overlap of two lists of names. A name that a list contains twice is not joined.

    >>> overlap(["a", "b", "c", "c"], ["b", "c", "d"])
    Overlap(shared=1, only_base=1, only_other=1, twice=1)
    """
    repeated = _repeated(base) | _repeated(other)
    base_names, other_names = set(base) - repeated, set(other) - repeated
    return Overlap(
        shared=len(base_names & other_names),
        only_base=len(base_names - other_names),
        only_other=len(other_names - base_names),
        twice=len(repeated),
    )


def _repeated(names: Sequence[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def join(
    base: MeasuredRun, other: MeasuredRun, metric: int, unit: Unit
) -> tuple[Measurements, Measurements]:
    """Return the units of a metric that both runs measured, in the order of the base."""
    base_units, other_units = base.measurements[metric], other.measurements[metric]
    names = [base.name_of(unit, at) for at in base_units.units]
    other_names = [other.name_of(unit, at) for at in other_units.units]
    repeated = _repeated(base.ids) | _repeated(other.ids) if unit != "group" else set()
    place = {name: i for i, name in enumerate(other_names) if name not in repeated}
    pairs = [(i, place[name]) for i, name in enumerate(names) if name in place]
    return (
        base_units.subset([i for i, _ in pairs]),
        other_units.subset([i for _, i in pairs]),
    )


@dataclass
class _Paired:
    """A metric over the common units of two runs, with the parts of both as columns."""

    metric: Metric
    measurements: Measurements

    def both(self, sums: Parts) -> tuple[Values, Values]:
        sides = [
            {part[len(side) :]: value for part, value in sums.items() if part.startswith(side)}
            for side in _SIDES
        ]
        return self.metric.values(sides[0]), self.metric.values(sides[1])

    def differences(self, sums: Parts) -> Values:
        base, other = self.both(sums)
        return {name: _minus(other[name], base[name]) for name in base if name in other}

    def agreement(self, name: str) -> RunAgreement | None:
        """Count the units with the value 1 in both runs, in one and in none.

        Return None if the value `name` is not a share of units, or if a unit is neither 0 nor 1.
        """
        parts = getattr(self.metric, "ratios", {}).get(name, ())
        names = [side + part for part in parts for side in _SIDES]
        if not names or not self.measurements.columns.keys() >= set(names):
            return None
        base, other, *units = (self.measurements.columns[name] for name in names)
        if not {*base, *other} <= {0.0, 1.0} or {*units[0], *units[1]} != {1.0}:
            return None
        counts = Counter(zip(base, other, strict=True))
        return RunAgreement(
            both=counts[1.0, 1.0],
            only_base=counts[1.0, 0.0],
            only_other=counts[0.0, 1.0],
            neither=counts[0.0, 0.0],
        )

    def report(self, ends: Mapping[str, Interval | None]) -> list[Difference]:
        sums = self.measurements.sums
        base, other = self.both(sums)
        differences = []
        for name, difference in self.differences(sums).items():
            low, high = ends.get(name) or (None, None)
            differences.append(
                Difference(
                    metric=repr(self.metric),
                    name=name,
                    units=len(self.measurements),
                    base=base[name],
                    other=other[name],
                    difference=difference,
                    low=low,
                    high=high,
                    holds=None if low is None or high is None else low > 0 or high < 0,
                    agreement=self.agreement(name),
                )
            )
        return differences


_SIDES = _BASE, _OTHER = "base:", "other:"


def _minus(other: float | None, base: float | None) -> float | None:
    return None if other is None or base is None else other - base


def _pair(base: MeasuredRun, other: MeasuredRun, metric: Metric, i: int) -> _Paired:
    first, second = join(base, other, i, metric.unit)
    columns = {_BASE + part: values for part, values in first.columns.items()}
    columns |= {_OTHER + part: values for part, values in second.columns.items()}
    return _Paired(metric, Measurements(first.units, first.prompts, columns))


def evaluate_pairs(
    runs: Sequence[MeasuredRun], metrics: Sequence[Metric], resampling: Resampling
) -> list[MetricReport]:
    """Return the metrics over pairs of rows: the first run with documents, the second without."""
    paired = [i for i, metric in enumerate(metrics) if metric.unit == "pair"]
    if not paired:
        return []
    if runs[1].with_documents and not runs[0].with_documents:
        raise UsageError(f"{runs[0].name} has no documents: pass the file with documents first")
    measured = [_with_and_without(runs[0], runs[1], i) for i in paired]
    reports = summarize([metrics[i] for i in paired], measured, resampling)
    for report, i in zip(reports, paired, strict=True):
        report.left_out = runs[0].left_out[i] + runs[1].left_out[i]
    return reports


def check_pairs(metrics: Sequence[Metric], runs: int) -> None:
    """Raise UsageError if a metric over pairs of rows does not have two files."""
    paired = next((metric for metric in metrics if metric.unit == "pair"), None)
    if paired is not None and runs != 2:
        raise UsageError(f"{paired!r} requires two files, with and without documents: found {runs}")


def _with_and_without(documents: MeasuredRun, no_documents: MeasuredRun, i: int) -> Measurements:
    first, second = join(documents, no_documents, i, "pair")
    columns: dict[str, Sequence[float]] = {
        "with": first.columns["right"],
        "without": second.columns["right"],
        "pairs": first.columns["rows"],
    }
    return Measurements(first.units, first.prompts, columns)
