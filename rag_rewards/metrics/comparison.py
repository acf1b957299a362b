"""Runs side by side: joined on id, resampled together, which differences hold.

A difference between two runs of the same questions is far surer than their two intervals
suggest: hard questions are hard for both. So rows are joined on `id`, groups on their key, and
both runs are resampled with the same counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.metrics.metric import Metric, Parts, Unit, Values
from rag_rewards.metrics.sample import Run, Sample
from rag_rewards.metrics.summary import MetricReport, Resampling, intervals_of, summarise


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A value in both runs, over what they share, and other − base with its interval.

    `holds`: the interval lies on one side of 0; None where there is no interval.
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


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """How many ids two runs share, have alone, and have twice (which joins nothing)."""

    shared: int
    only_base: int
    only_other: int
    twice: int


class Comparison(msgspec.Struct, kw_only=True):
    """Two runs."""

    base: str
    other: str
    rows: Shared
    groups: Shared
    differences: list[Difference]


def compare(
    base: Run,
    other: Run,
    metrics: Sequence[Metric],
    chosen: Sequence[int],
    resampling: Resampling,
) -> Comparison:
    """The chosen metrics of two runs over the rows, or groups, that both have and could measure."""
    paired = [_pair(base, other, metrics[i], i) for i in chosen]
    together: dict[int, list[tuple[_Paired, Mapping[str, Sequence[float]]]]] = defaultdict(list)
    for pair in paired:
        prompts, columns = pair.sample.resampled()
        together[prompts].append((pair, columns))
    found: dict[str, list[Difference]] = {}
    for prompts, alike in together.items():
        wanted = [(pair.differences, columns) for pair, columns in alike]
        drawn = intervals_of(wanted, resampling) if prompts else [{} for _ in alike]
        for (pair, _), ends in zip(alike, drawn, strict=True):
            found[repr(pair.metric)] = pair.report(ends)
    rows = shared_names(base.ids, other.ids)
    groups = shared_names(base.groups, other.groups)
    differences = [each for i in chosen for each in found[repr(metrics[i])]]
    return Comparison(
        base=base.name, other=other.name, rows=rows, groups=groups, differences=differences
    )


def shared_names(base: Sequence[str], other: Sequence[str]) -> Shared:
    """What two lists of names share; a name that a list has twice joins nothing.

    >>> shared_names(["a", "b", "c", "c"], ["b", "c", "d"])
    Shared(shared=1, only_base=1, only_other=1, twice=1)
    """
    mine, theirs = Counter(base), Counter(other)
    twice = {name for count in (mine, theirs) for name, n in count.items() if n > 1}
    ours, yours = mine.keys() - twice, theirs.keys() - twice
    return Shared(
        shared=len(ours & yours),
        only_base=len(ours - yours),
        only_other=len(yours - ours),
        twice=len(twice),
    )


def join(base: Run, other: Run, unit: Unit, mine: Sample, theirs: Sample) -> tuple[Sample, Sample]:
    """The units that both runs measured, in the base's order."""
    own = [base.name_of(unit, at) for at in mine.at]
    names = [other.name_of(unit, at) for at in theirs.at]
    twice = _twice(base.ids) | _twice(other.ids) if unit != "group" else set()
    place = {name: i for i, name in enumerate(names) if name not in twice}
    pairs = [(i, place[name]) for i, name in enumerate(own) if name in place]
    return mine.only(list(map(itemgetter(0), pairs))), theirs.only(list(map(itemgetter(1), pairs)))


def _twice(names: Sequence[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


@dataclass
class _Paired:
    """A metric over the units of two runs: columns of the base's parts and of the other's."""

    metric: Metric
    sample: Sample

    def both(self, sums: Parts) -> tuple[Values, Values]:
        sides = [
            {part[len(side) :]: value for part, value in sums.items() if part.startswith(side)}
            for side in (_BASE, _OTHER)
        ]
        return self.metric.values(sides[0]), self.metric.values(sides[1])

    def differences(self, sums: Parts) -> Values:
        base, other = self.both(sums)
        return {name: _minus(other[name], base[name]) for name in base if name in other}

    def report(self, ends: Mapping[str, tuple[float, float] | None]) -> list[Difference]:
        sums = self.sample.sums
        base, other = self.both(sums)
        found = []
        for name, difference in self.differences(sums).items():
            low, high = ends.get(name) or (None, None)
            found.append(
                Difference(
                    metric=repr(self.metric),
                    name=name,
                    units=len(self.sample),
                    base=base[name],
                    other=other[name],
                    difference=difference,
                    low=low,
                    high=high,
                    holds=None if low is None or high is None else low > 0 or high < 0,
                )
            )
        return found


_BASE, _OTHER = "base:", "other:"


def _minus(other: float | None, base: float | None) -> float | None:
    return None if other is None or base is None else other - base


def _pair(base: Run, other: Run, metric: Metric, i: int) -> _Paired:
    mine, theirs = join(base, other, metric.unit, base.samples[i], other.samples[i])
    columns = {_BASE + part: values for part, values in mine.columns.items()}
    columns |= {_OTHER + part: values for part, values in theirs.columns.items()}
    return _Paired(metric, Sample(mine.at, mine.prompts, columns))


def reliance(
    runs: Sequence[Run], metrics: Sequence[Metric], resampling: Resampling
) -> list[MetricReport]:
    """Metrics over pairs of rows: the first run answered with documents, the second without."""
    wanted = [i for i, metric in enumerate(metrics) if metric.unit == "pair"]
    if not wanted:
        return []
    if runs[1].with_documents and not runs[0].with_documents:
        raise UsageError(f"{runs[0].name} has no documents: give the file with documents first")
    samples = [_with_and_without(runs[0], runs[1], i) for i in wanted]
    reports = summarise([metrics[i] for i in wanted], samples, resampling)
    for report, i in zip(reports, wanted, strict=True):
        report.left_out = runs[0].left_out[i] + runs[1].left_out[i]
    return reports


def check_pairs(metrics: Sequence[Metric], runs: int) -> None:
    """UsageError where a metric over pairs of rows does not get its two files."""
    paired = next((metric for metric in metrics if metric.unit == "pair"), None)
    if paired is not None and runs != 2:
        raise UsageError(f"{paired!r} takes two files, with and without documents: {runs} given")


def _with_and_without(given: Run, alone: Run, i: int) -> Sample:
    mine, theirs = join(given, alone, "pair", given.samples[i], alone.samples[i])
    columns: dict[str, Sequence[float]] = {
        "with": mine.columns["right"],
        "without": theirs.columns["right"],
        "pairs": mine.columns["rows"],
    }
    return Sample(mine.at, mine.prompts, columns)
