"""Group advantages: the rewards of a group, normalized for the policy gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean, also of values whose sum is too large for a number.

    >>> mean([1.5e308, 1.5e308])
    1.5e+308
    """
    values = list(values)
    try:
        return fmean(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the population standard deviation.

    >>> mean_std([1.0, 3.0])
    (2.0, 1.0)
    """
    n = len(values)
    if min(values) == max(values):
        return values[0], 0.0  # with rounding, the deviation would not be 0
    if (unit := overflow_unit(values)) > 1:
        center, std = mean_std([value / unit for value in values])
        return center * unit, std * unit
    center = math.fsum(values) / n
    return center, math.sqrt(math.fsum((v - center) ** 2 for v in values) / n)


def overflow_unit(values: Sequence[float]) -> float:
    """Return a power of two; values that are divided by it have squares and sums that are finite.

    It is 1 for all values below 1e150.
    """
    return 1.0 if max(map(abs, values)) < 1e150 else 2.0**600


def group_advantages(rewards: Sequence[float], *, std_floor: float = 0.1) -> list[float]:
    """Return A_i = (R_i − mean)/max(std, floor), with the population standard deviation.

    The floor keeps the advantages small if the rewards are almost equal. If they are equal, all
    advantages are 0. Source: LEAR, Eq. 11 (clip of the standard deviation at 0.1).

    >>> [round(a, 6) for a in group_advantages([0.5, 0.52])]
    [-0.1, 0.1]
    """
    if not rewards:
        return []
    unit = overflow_unit(rewards)
    rewards = [reward / unit for reward in rewards]
    center, std = mean_std(rewards)
    scale = max(std, std_floor / unit)
    if not scale:
        return [0.0] * len(rewards)
    return [(reward - center) / scale for reward in rewards]


def advantages_of_groups(
    rewards: Sequence[float | None], groups: Sequence[Sequence[int]], *, std_floor: float = 0.1
) -> list[float | None]:
    """Return the advantage of each rollout within its group, or None without a reward.

    `groups` contains the positions of the members of each group. A rollout without a reward does
    not count in the mean and the standard deviation of its group.

    >>> advantages_of_groups([1.0, None, 0.0, 5.0], [[0, 1, 2], [3]])
    [1.0, None, -1.0, 0.0]
    """
    advantages: list[float | None] = [None] * len(rewards)
    for group in groups:
        scored = {i: reward for i in group if (reward := rewards[i]) is not None}
        values = group_advantages(list(scored.values()), std_floor=std_floor)
        for i, advantage in zip(scored, values, strict=True):
            advantages[i] = advantage
    return advantages


def zscores(rewards: Sequence[float], *, epsilon: float = 1e-8) -> list[float]:
    """Return (R_i − mean)/(std + ε), with the population standard deviation.

    Source: CTRL-RAG, Eq. 8; GRPO.

    >>> [round(a, 6) for a in zscores([0.0, 1.0])]
    [-1.0, 1.0]
    """
    if not rewards:
        return []
    unit = overflow_unit(rewards)
    rewards = [reward / unit for reward in rewards]
    center, std = mean_std(rewards)
    return [(reward - center) / (std + epsilon / unit) for reward in rewards]
