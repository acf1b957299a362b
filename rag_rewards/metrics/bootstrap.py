"""Bootstrap intervals without numpy.

In a resample, each unit has a Poisson(1) weight (the Poisson bootstrap, which approximates n draws
with replacement by independent weights). The weights of all units are a few long integers, one per
binary digit, and so are the columns that are summed. Σ weight·value is then computed with `&` and
`bit_count`, which is fast for 1,000 resamples of 100,000 units. Equal seeds give equal weights on
every machine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

RESAMPLES = 1000
LEVEL = 0.95
_DIGITS = 16
"""Number of binary digits of the values of a column, and of the probabilities of weights."""
_LARGEST = 7  # P(weight > 7) = 10⁻⁵, which is less than 2⁻¹⁶


def _at_least() -> list[int]:
    """P(Poisson(1) ≥ j) for j = 1 … 7, in units of 2⁻¹⁶."""
    below = accumulate(math.exp(-1) / math.factorial(j) for j in range(_LARGEST))
    return [round((1 - p) * 2**_DIGITS) for p in below]


_AT_LEAST = _at_least()


def poisson_planes(rng: random.Random, units: int) -> tuple[int, int, int]:
    """Return the weights of all units as three bit planes: the digits for 1, 2 and 4.

    Bit i of a plane belongs to unit i. Weights are Poisson(1), truncated at 7, with probabilities
    to 2⁻¹⁶.
    """
    uniform = [rng.getrandbits(units) for _ in range(_DIGITS)]
    least = []
    for threshold in _AT_LEAST:
        # Compare 16-bit uniform numbers with the threshold for all units, lowest digit first.
        below = 0
        for digit, plane in enumerate(uniform):
            below = plane | below if threshold >> digit & 1 else plane & below
        least.append(below)
    one, two, three, four, five, six, seven = least
    ones = one ^ two ^ three ^ four ^ five ^ six ^ seven
    return ones, two ^ four ^ six, four


@dataclass(frozen=True)
class Column:
    """Numbers as low + Σ scale·bit, with one long integer per scale (bit i belongs to unit i)."""

    low: float
    bits: tuple[tuple[float, int], ...]

    def total(self, weights: Sequence[int], units: int) -> float:
        """Return Σ weight·value from the bit planes of the weights. `units` is Σ weight."""
        total = self.low * units
        for scale, bits in self.bits:
            times = 0
            for power, plane in enumerate(weights):
                times += (bits & plane).bit_count() << power
            total += scale * times
        return total


def column_of(values: Sequence[float]) -> Column:
    """Return a column with one bit per distinct value or, for many values, with binary digits.

    Integers are exact. Other numbers are rounded to 2⁻¹⁶ of their range.
    """
    distinct = sorted(set(values))
    low, extent = distinct[0], distinct[-1] - distinct[0]
    if len(distinct) <= _DIGITS:
        which = {value: at for at, value in enumerate(distinct)}
        octets = bytes([which[value] for value in reversed(values)])
        pairs = [(v - low, _is_byte(octets, at)) for at, v in enumerate(distinct) if at]
        return Column(low, tuple(pairs))
    whole = extent < 2**_DIGITS and all(float(value).is_integer() for value in distinct)
    step = 1.0 if whole else extent / (2**_DIGITS - 1)
    numbers = [round((value - low) / step) for value in reversed(values)]
    width = max(numbers).bit_length()
    planes: list[int] = []
    for shift in range(0, width, 8):
        octets = bytes([number >> shift & 255 for number in numbers])
        planes += [_has_bit(octets, bit) for bit in range(min(8, width - shift))]
    return Column(low, tuple((step * 2**digit, plane) for digit, plane in enumerate(planes)))


def _is_byte(octets: bytes, sought: int) -> int:
    """The units whose byte has this value, as a long integer; the last unit comes first."""
    return int(octets.translate(bytes(48 + (byte == sought) for byte in range(256))), 2)


def _has_bit(octets: bytes, bit: int) -> int:
    """The units whose byte has this bit, as a long integer; the last unit comes first."""
    return int(octets.translate(bytes(48 + (byte >> bit & 1) for byte in range(256))), 2)


def resampled_sums(
    columns: Sequence[Sequence[float]], *, resamples: int = RESAMPLES, seed: int = 0
) -> Iterator[list[float]]:
    """Yield Σ weight·value of each column for each resample. All columns share the weights.

    A resample in which all weights are 0 is drawn again.

    >>> [round(total / 4, 2) for total, in resampled_sums([[1.0] * 4], resamples=5)]
    [1.75, 1.25, 0.75, 1.0, 1.5]
    """
    units = len(columns[0]) if columns else 0
    if not units:
        return
    compact = [column_of(values) for values in columns]
    rng = random.Random(seed)  # noqa: S311 (not for secrets)
    count = 0
    while count < resamples:
        weights = poisson_planes(rng, units)
        total = sum(weight.bit_count() << power for power, weight in enumerate(weights))
        if total:
            count += 1
            yield [column.total(weights, total) for column in compact]


def interval(values: Sequence[float | None], level: float = LEVEL) -> tuple[float, float] | None:
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


Statistic = Callable[[Sequence[float]], dict[str, float | None]]
"""A function from the sums of columns to values by name."""


def intervals(
    columns: Sequence[Sequence[float]],
    statistics: Sequence[Statistic],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[dict[str, tuple[float, float] | None]]:
    """Return the interval of each value of each statistic, from the same resamples."""
    results: list[dict[str, list[float | None]]] = [{} for _ in statistics]
    for sums in resampled_sums(columns, resamples=resamples, seed=seed):
        for result, statistic in zip(results, statistics, strict=True):
            for name, value in statistic(sums).items():
                result.setdefault(name, []).append(value)
    return [{name: interval(values) for name, values in result.items()} for result in results]
