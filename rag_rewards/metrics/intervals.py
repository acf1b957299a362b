"""The values of metrics with bootstrap intervals, from measurements.

In a resample, each prompt has a Poisson(1) weight (the Poisson bootstrap, which approximates n
draws with replacement by independent weights). Equal seeds give equal weights on every machine.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import msgspec

from rag_rewards.errors import OptionError
from rag_rewards.metrics.measurement import ErrorCount, Measurements
from rag_rewards.metrics.metric import Metric, Parts, Values

RESAMPLES = 1000
LEVEL = 0.95
_DIGITS = 16
"""Number of binary digits of the uniform numbers from which weights are drawn."""
_LARGEST = 7  # P(weight > 7) = 10⁻⁵, which is less than 2⁻¹⁶
Interval = tuple[float, float]
Columns = Mapping[str, Sequence[float]]
"""One number per prompt, by the name of the part."""
Statistic = Callable[[Parts], Values]
"""A function from the sums of columns to values by name."""


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

    resamples: int = RESAMPLES
    seed: int = 0

    def __post_init__(self) -> None:
        if self.resamples < 2:
            raise OptionError("{resamples} must be at least 2, found {n}", n=self.resamples)


def summarize(
    metrics: Sequence[Metric], measured: Sequence[Measurements], resampling: Resampling
) -> list[MetricReport]:
    """Return the values of several metrics. Metrics with equally many prompts share resamples."""
    by_prompt = [measurements.by_prompt() for measurements in measured]
    statistics = [
        (metric.values, columns) for metric, (_, columns) in zip(metrics, by_prompt, strict=True)
    ]
    ends = intervals_of(statistics, resampling)
    return [
        MetricReport(
            metric=repr(metric),
            unit=metric.unit,
            units=len(measurements),
            prompts=prompts,
            values={
                name: Value(value, *(own_ends.get(name) or ()))
                for name, value in metric.values(sums).items()
            },
            counts=sums,
        )
        for metric, measurements, (prompts, _), own_ends in zip(
            metrics, measured, by_prompt, ends, strict=True
        )
        for sums in (measurements.sums,)
    ]


def intervals_of(
    statistics: Sequence[tuple[Statistic, Columns]], resampling: Resampling
) -> list[dict[str, Interval | None]]:
    """Return the intervals of the values of each statistic over its columns.

    Statistics with equally many prompts share resamples. Without prompts there are no intervals.
    """
    results: list[list[Values]] = [[] for _ in statistics]
    by_size: dict[int, list[int]] = defaultdict(list)
    for i, (_, columns) in enumerate(statistics):
        by_size[len(next(iter(columns.values()), ()))].append(i)
    for members in by_size.values():
        distinct, places = _distinct([statistics[i][1] for i in members])
        for sums in resampled_sums(distinct, resampling):
            for i, own in zip(members, places, strict=True):
                named = {part: sums[place] for part, place in own.items()}
                results[i].append(statistics[i][0](named))
    return list(map(intervals, results))


def intervals(resamples: Iterable[Values]) -> dict[str, Interval | None]:
    """Return the interval of each value over the values of resamples."""
    by_name: dict[str, list[float | None]] = {}
    for values in resamples:
        for name, value in values.items():
            by_name.setdefault(name, []).append(value)
    return {name: interval(values) for name, values in by_name.items()}


def _distinct(named: Sequence[Columns]) -> tuple[list[list[float]], list[dict[str, int]]]:
    """Return the different columns, and the place of each named column among them."""
    order: dict[bytes, int] = {}
    columns: list[list[float]] = []
    places: list[dict[str, int]] = []
    for each in named:
        places.append({})
        for part, values in each.items():
            content = array("d", values).tobytes()
            if content not in order:
                order[content] = len(columns)
                columns.append(list(map(float, values)))
            places[-1][part] = order[content]
    return columns, places


def resampled_sums(
    columns: Sequence[Sequence[float]], resampling: Resampling
) -> Iterator[list[float]]:
    """Yield Σ weight·value of each column for each resample. All columns share the weights.

    >>> [round(total / 4, 2) for total, in resampled_sums([[1.0] * 4], Resampling(5))]
    [1.75, 1.25, 0.75, 1.0, 1.5]
    """
    # `sum` is exact for whole numbers. For others, its rounding depends on the Python version.
    adders = [sum if all(map(float.is_integer, column)) else math.fsum for column in columns]
    terms = list(zip(adders, columns, strict=True))
    for weights in resampled_weights(len(columns[0]) if columns else 0, resampling):
        yield [add(map(mul, weights, column)) for add, column in terms]


def resampled_weights(prompts: int, resampling: Resampling) -> Iterator[list[float]]:
    """Yield the weights of all prompts for each resample. If all are 0, they are drawn again."""
    rng = random.Random(resampling.seed)  # noqa: S311 (not for secrets)
    count = 0
    while prompts and count < resampling.resamples:
        weights = poisson_weights(rng, prompts)
        if any(weights):
            count += 1
            yield weights


def _at_least() -> list[int]:
    """P(Poisson(1) ≥ j) for j = 1 … 7, in units of 2⁻¹⁶."""
    below = accumulate(math.exp(-1) / math.factorial(j) for j in range(_LARGEST))
    return [round((1 - p) * 2**_DIGITS) for p in below]


_AT_LEAST = _at_least()
_DIGIT_VALUES = bytes.maketrans(b"01", b"\0\1")


def poisson_weights(rng: random.Random, units: int) -> list[float]:
    """Return a Poisson(1) weight of each unit, truncated at 7, with probabilities to 2⁻¹⁶.

    Bit i of each long integer belongs to unit i, so that all units are drawn at once: the weight is
    the number of probabilities P(weight ≥ j) that exceed a uniform number.
    """
    uniform = [rng.getrandbits(units) for _ in range(_DIGITS)]
    least = []
    for probability in _AT_LEAST:
        exceeds = 0
        for digit, bits in enumerate(uniform):  # the lowest digit first
            exceeds = bits | exceeds if probability >> digit & 1 else bits & exceeds
        least.append(exceeds)
    one, two, three, four, five, six, seven = least
    digits = (one ^ two ^ three ^ four ^ five ^ six ^ seven, two ^ four ^ six, four)
    ones, twos, fours = (_one_byte_per_bit(digit, units) for digit in digits)
    return list(map(float, (ones + 2 * twos + 4 * fours).to_bytes(units, "little")))


def _one_byte_per_bit(bits: int, count: int) -> int:
    """Return an integer whose byte i is bit i, so that the sums of all units are one addition."""
    return int.from_bytes(f"{bits:0{count}b}".encode().translate(_DIGIT_VALUES), "big")


def interval(values: Sequence[float | None], level: float = LEVEL) -> Interval | None:
    """Return the percentile interval of a bootstrap. Resamples without a value are excluded.

    None if fewer than two resamples have a value.

    >>> interval([float(i) for i in range(1000)])
    (25.0, 974.0)
    """
    ordered = sorted(value for value in values if value is not None)
    if len(ordered) < 2:
        return None
    tail = (1 - level) / 2 * len(ordered)
    at = min(int(tail), (len(ordered) - 1) // 2)
    return ordered[at], ordered[-1 - at]
