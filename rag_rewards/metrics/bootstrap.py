"""Intervals by resampling, fast enough without numpy.

A resample counts every unit Poisson(1) times (the Poisson bootstrap: what drawing n of n with
replacement tends to, without the draws depending on one another). A thousand of them over 100,000
units are 10⁸ counts, so they are never made one by one: all units' counts are a few long integers,
one per binary digit, and so are the columns that are summed. Σ count·value is then a matter of
`&` and `bit_count`. The same seed gives the same counts on every machine.
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
"""Of a column's values, and of the chances that counts are drawn with."""
_MOST = 7  # P(more) = 10⁻⁵, less than 2⁻¹⁶


def _at_least() -> list[int]:
    """P(Poisson(1) ≥ j) for j = 1 … 7, in 2⁻¹⁶ths."""
    below = accumulate(math.exp(-1) / math.factorial(j) for j in range(_MOST))
    return [round((1 - p) * 2**_DIGITS) for p in below]


_AT_LEAST = _at_least()


def poisson_planes(rng: random.Random, units: int) -> tuple[int, int, int]:
    """How often each unit counts, as the binary digits of all counts: 1s, 2s and 4s.

    Bit i of a plane belongs to unit i. Every count is Poisson(1), truncated at 7, to 2⁻¹⁶.
    """
    uniform = [rng.getrandbits(units) for _ in range(_DIGITS)]
    least = []
    for threshold in _AT_LEAST:
        # Compares 16-bit uniforms with the threshold, all units at once, lowest digit first.
        below = 0
        for digit, plane in enumerate(uniform):
            below = plane | below if threshold >> digit & 1 else plane & below
        least.append(below)
    one, two, three, four, five, six, seven = least
    ones = one ^ two ^ three ^ four ^ five ^ six ^ seven
    return ones, two ^ four ^ six, four


@dataclass(frozen=True)
class Column:
    """Numbers as low + Σ scale·bit, one long integer of bits (bit i: unit i) per scale."""

    low: float
    bits: tuple[tuple[float, int], ...]

    def total(self, counts: Sequence[int], units: int) -> float:
        """Σ count·value, from the counts' planes. `units` is Σ count."""
        summed = self.low * units
        for scale, bits in self.bits:
            times = 0
            for power, plane in enumerate(counts):
                times += (bits & plane).bit_count() << power
            summed += scale * times
        return summed


def column_of(values: Sequence[float]) -> Column:
    """A column: one bit for each of a few distinct values, else binary digits.

    Whole numbers are kept as they are, others to 2⁻¹⁶ of their range.
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
    """The units (the last first) whose byte is this one, as a long integer."""
    return int(octets.translate(bytes(48 + (byte == sought) for byte in range(256))), 2)


def _has_bit(octets: bytes, bit: int) -> int:
    """The units (the last first) whose byte has this bit, as a long integer."""
    return int(octets.translate(bytes(48 + (byte >> bit & 1) for byte in range(256))), 2)


def resampled_sums(
    columns: Sequence[Sequence[float]], *, resamples: int = RESAMPLES, seed: int = 0
) -> Iterator[list[float]]:
    """Σ count·value of every column, once per resample; all columns of one resample share counts.

    A resample in which no unit counts at all is drawn again: it is no data set.

    >>> [round(total / 4, 2) for total, in resampled_sums([[1.0] * 4], resamples=5)]
    [1.75, 1.25, 0.75, 1.0, 1.5]
    """
    units = len(columns[0]) if columns else 0
    if not units:
        return
    ready = [column_of(values) for values in columns]
    rng = random.Random(seed)  # noqa: S311 (a resampling, not a secret)
    done = 0
    while done < resamples:
        weights = poisson_planes(rng, units)
        counted = sum(weight.bit_count() << power for power, weight in enumerate(weights))
        if counted:
            done += 1
            yield [column.total(weights, counted) for column in ready]


def interval(values: Sequence[float | None], level: float = LEVEL) -> tuple[float, float] | None:
    """The percentile interval of a bootstrap; resamples without a value are left out.

    None where fewer than two have one.

    >>> interval([float(i) for i in range(1000)])
    (25.0, 974.0)
    """
    known = sorted(value for value in values if value is not None)
    if len(known) < 2:
        return None
    tail = (1 - level) / 2 * len(known)
    at = min(int(tail), (len(known) - 1) // 2)
    return known[at], known[-1 - at]


Statistic = Callable[[Sequence[float]], dict[str, float | None]]
"""Sums of columns → values by name."""


def intervals(
    columns: Sequence[Sequence[float]],
    statistics: Sequence[Statistic],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[dict[str, tuple[float, float] | None]]:
    """The interval of every value of every statistic, all from the same resamples."""
    drawn: list[dict[str, list[float | None]]] = [{} for _ in statistics]
    for sums in resampled_sums(columns, resamples=resamples, seed=seed):
        for kept, statistic in zip(drawn, statistics, strict=True):
            for name, value in statistic(sums).items():
                kept.setdefault(name, []).append(value)
    return [{name: interval(values) for name, values in kept.items()} for kept in drawn]
