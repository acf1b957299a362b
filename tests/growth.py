"""Linear time without a limit in seconds, because the speed of machines differs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest

FLOOR = 0.005
"""Seconds of processor time that are too short for a measurement."""

TIMES = 24
"""A linear function takes 8 times as long for 8 times the size, a quadratic one 64 times."""

FAST = 50_000
"""The largest size of the fast tests."""


def sizes(largest: int) -> pytest.MarkDecorator:
    """Give a test the argument `largest`: a small size in the fast tests, and this in the slow."""
    full = pytest.param(largest, marks=pytest.mark.slow)
    return pytest.mark.parametrize("largest", [min(largest, FAST), full])


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
