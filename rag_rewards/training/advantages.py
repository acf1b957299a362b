"""Group advantages: what a group's rewards become before the policy gradient sees them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and population standard deviation.

    >>> mean_std([1.0, 3.0])
    (2.0, 1.0)
    """
    n = len(values)
    if min(values) == max(values):
        return values[0], 0.0  # rounding must not give equal values a spread
    mean = math.fsum(values) / n
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / n)


def group_advantages(rewards: Sequence[float], *, std_floor: float = 0.1) -> list[float]:
    """A_i = (R_i − mean)/max(std, floor), population std. All 0 where all rewards are equal.

    The floor keeps a group of near-equal rewards from being blown up. Source: LEAR, section 3.3
    (clip of the standard deviation at 0.1).

    >>> [round(a, 6) for a in group_advantages([0.5, 0.52])]
    [-0.1, 0.1]
    """
    if not rewards:
        return []
    mean, std = mean_std(rewards)
    scale = max(std, std_floor)
    if not scale:
        return [0.0] * len(rewards)
    return [(reward - mean) / scale for reward in rewards]


def advantages_of_groups(
    rewards: Sequence[float | None], groups: Sequence[Sequence[int]], *, std_floor: float = 0.1
) -> list[float | None]:
    """Group advantages, by the positions of each group's members; None where there is no reward.

    What has no reward is left out of its group's mean and deviation.

    >>> advantages_of_groups([1.0, None, 0.0, 5.0], [[0, 1, 2], [3]])
    [1.0, None, -1.0, 0.0]
    """
    given: list[float | None] = [None] * len(rewards)
    for group in groups:
        scored = {i: reward for i in group if (reward := rewards[i]) is not None}
        advantages = group_advantages(list(scored.values()), std_floor=std_floor)
        for i, advantage in zip(scored, advantages, strict=True):
            given[i] = advantage
    return given


def zscores(rewards: Sequence[float], *, epsilon: float = 1e-8) -> list[float]:
    """(R_i − mean)/(std + ε), population std. Source: CTRL-RAG, Eq. 8; GRPO.

    >>> [round(a, 6) for a in zscores([0.0, 1.0])]
    [-1.0, 1.0]
    """
    if not rewards:
        return []
    mean, std = mean_std(rewards)
    return [(reward - mean) / (std + epsilon) for reward in rewards]
