"""The bootstrap against an implementation that draws and counts unit by unit."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.metrics.intervals import (
    Resampling,
    interval,
    intervals_of,
    poisson_weights,
    resampled_sums,
)

quick = budget(80)
FLOATS = st.floats(-1e6, 1e6, allow_nan=False, width=32)


def mean(sums):
    return {"mean": sums["sum"] / sums["rows"]}


def slow_counts(rng: random.Random, units: int) -> list[int]:
    """Sample Poisson(1) weights by inverse transform, one unit at a time, from the same bits."""
    digits = [rng.getrandbits(units) for _ in range(16)]
    counts = []
    for i in range(units):
        uniform = sum((digit >> i & 1) << b for b, digit in enumerate(digits))
        # The planes hold the complement of the uniform number.
        u = 2**16 - 1 - uniform
        survival = [
            1 - sum(math.exp(-1) / math.factorial(m) for m in range(j)) for j in range(1, 8)
        ]
        counts.append(sum(u < round(p * 2**16) for p in survival))
    return counts


@quick
@given(st.integers(0, 2**32), st.integers(1, 300))
def test_weights_against_the_slow_implementation(seed, units):
    assert poisson_weights(random.Random(seed), units) == slow_counts(random.Random(seed), units)


def test_counts_are_poisson():
    n = 200_000
    counts = poisson_weights(random.Random(3), n)
    for k in range(5):
        expected = math.exp(-1) / math.factorial(k)
        assert counts.count(k) / n == pytest.approx(expected, abs=4 * math.sqrt(expected / n))


@quick
@given(st.lists(FLOATS, min_size=1, max_size=60), st.integers(0, 2**32))
def test_sums_against_the_slow_implementation(values, seed):
    rng = random.Random(seed)
    counts = slow_counts(rng, len(values))
    while not any(counts):
        counts = slow_counts(rng, len(values))
    [[total], _] = resampled_sums([values], Resampling(2, seed))
    expected = math.fsum(c * v for c, v in zip(counts, values, strict=True))
    assert total == pytest.approx(expected, abs=1e-9 * (1 + max(map(abs, values)) * sum(counts)))


def test_the_interval_against_drawing_with_replacement():
    rng = random.Random(5)
    values = [rng.gauss(10, 3) for _ in range(400)]
    columns = {"sum": values, "rows": [1.0] * len(values)}
    [ours] = intervals_of([(mean, columns)], Resampling(2000))
    means = [math.fsum(rng.choices(values, k=400)) / 400 for _ in range(2000)]
    assert ours["mean"] == pytest.approx(interval(means), abs=0.06)
    spread = 1.96 * 3 / math.sqrt(400)
    low, high = ours["mean"]
    assert (high - low) / 2 == pytest.approx(spread, rel=0.1)


def test_columns_share_weights_that_depend_on_the_seed():
    columns = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]
    sums = list(resampled_sums(columns, Resampling(200, 1)))
    assert all(b == pytest.approx(2 * a) for a, b in sums)
    assert sums == list(resampled_sums(columns, Resampling(200, 1)))
    assert sums != list(resampled_sums(columns, Resampling(200, 2)))
    assert len({a for a, _ in sums}) > 5


def test_the_weights_of_a_seed():
    first = [
        round(total) for (total,) in resampled_sums([[1.0, 10.0, 100.0, 1000.0]], Resampling(3))
    ]
    assert first == FIRST


FIRST = [1411, 1211, 1101]


def test_a_resample_without_units_is_drawn_again():
    assert min(total for (total,) in resampled_sums([[1.0]], Resampling(300))) >= 1.0
    assert (
        list(resampled_sums([[]], Resampling(3))) == list(resampled_sums([], Resampling(3))) == []
    )


def test_statistics_with_equally_many_prompts_share_resamples():
    columns = {"sum": [1.0, 2.0, 4.0], "rows": [1.0] * 3}
    fewer = {"sum": [1.0, 2.0], "rows": [1.0] * 2}
    statistics = [(mean, columns), (mean, fewer), (mean, {"sum": [], "rows": []}), (mean, columns)]
    first, other, nothing, again = intervals_of(statistics, Resampling(100))
    assert first == again != other
    assert nothing == {}


def test_the_interval_of_equal_values_has_no_width():
    columns = {"sum": [0.1] * 7, "rows": [1.0] * 7}
    [result] = intervals_of([(mean, columns)], Resampling(100))
    assert result["mean"] == pytest.approx((0.1, 0.1))


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], None), ([1.0], None), ([None, 1.0, None], None), ([2.0, None, 1.0], (1.0, 2.0))],
)
def test_resamples_without_a_value_are_excluded(values, expected):
    assert interval(values) == expected


@quick
@given(st.lists(FLOATS, min_size=2, max_size=300))
def test_an_interval_excludes_a_fortieth_on_each_side(values):
    low, high = interval(values)
    assert low <= high
    assert sum(v < low for v in values) <= len(values) / 40
    assert sum(v > high for v in values) <= len(values) / 40
