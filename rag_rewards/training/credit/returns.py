"""Returns with a baseline that does not depend on when a member stops."""

from __future__ import annotations

import math
from typing import Literal

from rag_rewards.errors import check_choice
from rag_rewards.training.advantages import mean_std
from rag_rewards.training.credit.entries import (
    Advantages,
    Rewards,
    Single,
    accumulated,
    check,
)

Scale = Literal["std", "none"]


def return_to_go(
    rewards: Rewards,
    *,
    gamma: float = 1.0,
    scale: Scale = "std",
    single: Single = "zero",
) -> Advantages:
    """Return A_t = (G_t − b_t)/s with the return G_t = Σ_{k ≥ t} γ^{k−t}·r_k.

    scale  `std`: s is the population standard deviation of G_1; `none`: s = 1

    b_t is the mean of G_t over all members, where a member that has stopped keeps the reward of its
    last turn. The number of terms of b_t does not depend on when a member stops, so that stopping
    has no advantage of its own. If s is at most 1e-9·max(1, |mean|), all advantages are 0.

    The method is our own; verl#7244 describes the bias of a baseline per turn.

    >>> a, b = return_to_go([[0.3, 0.3, 1.0], [0.6, 1.0]], scale="none")
    >>> [round(x, 6) for x in a], [round(x, 6) for x in b]
    ([0.0, 0.15, 0.0], [0.0, -0.15])
    """
    check_choice("scale", scale, Scale)
    check_choice("single", single, Single)
    check(rewards, gamma=gamma)
    returns = [None if entries is None else accumulated(entries, gamma) for entries in rewards]
    members = [values for values in returns if values is not None]
    if len(members) <= 1:
        return [
            None if values is None else (values if single == "raw" else [0.0] * len(values))
            for values in returns
        ]
    divisor = 1.0
    if scale == "std":
        mean, divisor = mean_std([values[0] for values in members])
        if divisor <= 1e-9 * max(1.0, abs(mean)):
            return [None if values is None else [0.0] * len(values) for values in returns]
    baseline = _baseline(members)
    return [
        None
        if values is None
        else [(value - mean) / divisor for value, mean in zip(values, baseline, strict=False)]
        for values in returns
    ]


def _baseline(members: list[list[float]]) -> list[float]:
    """Return the mean at each turn. A member that has stopped keeps its last return."""
    longest = max(map(len, members))
    stopped: list[list[float]] = [[] for _ in range(longest + 1)]
    for values in members:
        stopped[len(values)].append(values[-1])
    going = sorted(members, key=len, reverse=True)
    held: list[float] = []
    baseline: list[float] = []
    for t in range(longest):
        held += stopped[t]
        while len(going[-1]) <= t:
            going.pop()
        column = [values[t] for values in going]
        baseline.append(_mean(column + held))
    return baseline


def _mean(values: list[float]) -> float:
    """Return the mean, exactly for equal values."""
    if min(values) == max(values):
        return values[0]
    return math.fsum(values) / len(values)
