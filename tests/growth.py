"""Linear time without a limit in seconds, because the speed of machines differs."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence

FLOOR = 0.02
"""Seconds of processor time that are too short for a measurement."""

TIMES = 24
"""A linear function takes 8 times as long for 8 times the size, a quadratic one 64 times."""


def assert_linear(run: Callable[[int], object], size: int) -> None:
    """Fail if the time of `run(size)` is far more than 8 times the time of `run(size // 8)`.

    A busy machine has several attempts.
    """
    for _ in range(5):
        long = seconds(run, size)
        if long < FLOOR or long < TIMES * min(seconds(run, size // 8) for _ in range(2)):
            return
    raise AssertionError(
        f"{size} takes {long:.2f} s, more than {TIMES} times the time of an eighth"
    )


def seconds(run: Callable[[int], object], size: int) -> float:
    """Return the processor time of a run without garbage collection.

    A collection also visits the objects of all other tests, so that its time says nothing.
    """
    gc.disable()
    try:
        begun = time.process_time()
        run(size)
        return time.process_time() - begun
    finally:
        gc.enable()


def exponent(run: Callable[[int], object], sizes: Sequence[int], repeats: int = 3) -> float:
    """Return the exponent b of the time a·sizeᵇ of `run(size)`, a least-squares fit of logarithms.

    The time of a size is the shortest of several runs in processor time, because other processes
    only make a run longer.
    """
    times = [min(seconds(run, size) for _ in range(repeats)) for size in sizes]
    xs = [math.log(size) for size in sizes]
    ys = [math.log(max(time, 1e-9)) for time in times]
    return statistics.linear_regression(xs, ys).slope


def assert_exponent(run: Callable[[int], object], largest: int, limit: float = 1.5) -> None:
    """Fail if the time of `run(size)` grows with a larger exponent than `limit`.

    Two sizes tell this for nearly all functions, and four sizes for the others, several times.
    """
    sizes = [largest // 8, largest // 4, largest // 2, largest]
    if exponent(run, [sizes[0], sizes[-1]], repeats=1) < limit:
        return
    fits = []
    for _ in range(4):
        fits.append(exponent(run, sizes))
        if fits[-1] < limit:
            return
    raise AssertionError(f"the time grows with the exponent {min(fits):.2f}, above {limit}")
