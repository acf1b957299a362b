"""Rewards of turns: accumulation, and normalization that is exact for equal values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from rag_rewards.errors import UsageError
from rag_rewards.training.advantages import mean_std

Entries = Sequence[float | None]
Rewards = Sequence[Entries | None]
"""The rewards of the turns of each member. None is an unscored member."""
Advantages = list[list[float] | None]
"""The advantages of the turns of each member. None is an unscored member."""
Single = Literal["zero", "raw"]
"""The advantages of a group of one: 0, or its rewards without normalization."""


def check(rewards: Rewards, **options: float) -> None:
    """Raise UsageError for a member without turns, and for a number that is not finite.

    `options` are the numbers among the options of a method.
    """
    for name, value in options.items():
        check_number(name, value)
    for i, entries in enumerate(rewards):
        if entries is None:
            continue
        if not entries:
            raise UsageError(f"member {i} has no turn: give at least the outcome")
        for entry in entries:
            if entry is not None and not math.isfinite(entry):
                raise UsageError(f"member {i} has the reward {entry}: give finite numbers")


def check_number(name: str, value: float) -> None:
    """Raise UsageError for an option that is not finite, and for a negative `std_floor`."""
    if not math.isfinite(value) or (name == "std_floor" and value < 0):
        kind = "a number of at least 0" if name == "std_floor" else "a finite number"
        raise UsageError(f"option {name}={value}: set {kind}")


def scored(rewards: Rewards) -> list[Entries]:
    """Return the entries of the members that are scored."""
    return [entries for entries in rewards if entries is not None]


def accumulated(entries: Entries, gamma: float) -> list[float]:
    """Return Σ_{k ≥ t} γ^{k−t}·r_k for each turn t. None adds nothing.

    >>> accumulated([1.0, None, 2.0], 0.5)
    [1.5, 1.0, 2.0]
    """
    sums: list[float] = []
    following = 0.0
    for entry in reversed(entries):
        following = (entry or 0.0) + gamma * following
        sums.append(following)
    sums.reverse()
    return sums


def sample_std(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, which is 0 for at most one value.

    >>> sample_std([1.0, 0.0])[1] ** 2, sample_std([3.0])
    (0.5000000000000001, (3.0, 0.0))
    """
    if not values:
        return 0.0, 0.0
    mean, std = mean_std(values)
    n = len(values)
    return mean, std * math.sqrt(n / (n - 1)) if n > 1 else 0.0


def standardized(value: float | None, mean: float, std: float, epsilon: float) -> float:
    """Return (value − mean)/(std + ε), or 0 without a value or without spread."""
    if value is None or not std:
        return 0.0
    return (value - mean) / (std + epsilon)
