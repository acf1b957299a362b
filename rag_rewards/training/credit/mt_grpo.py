"""MT-GRPO: the advantage of the outcome plus the advantage of the process reward of a turn."""

from __future__ import annotations

import math
from typing import Literal

from rag_rewards.errors import check_choice
from rag_rewards.training.credit.entries import (
    Advantages,
    Entries,
    Rewards,
    Single,
    accumulated,
    check,
    sample_std,
    scored,
    standardized,
)

Reach = Literal["own", "rest"]

EPSILON = 1e-4


def mt_grpo(
    rewards: Rewards,
    *,
    weight: float = 1.0,
    reach: Reach = "own",
    gamma: float = 1.0,
    single: Single = "zero",
) -> Advantages:
    """Return A_t = A_O + λ·A_P,t for the turns before the last one, and A_O for the last one.

    weight  λ
    reach   `own`: the process reward of a turn affects this turn; `rest`: A_t contains
            λ·γ^{k−t}·A_P,k of all turns k ≥ t before the last one

    A_O is the z-score of the outcome. A_P,t is the z-score of the process reward among the members
    that have one at the same turn. Both use the sample standard deviation + 1e-4. A member with a
    single turn did not search; it gets the z-score of outcome + λ·Σ process among all members.

    For two turns, and where every member searched, this equals SiliangZeng/Multi-Turn-RL-Agent
    @7dbdd08, verifiers/trainers/mt_grpo_env_trainer.py. The extension to more turns is our own.

    >>> a, b = mt_grpo([[0.5, 1.0], [0.0, 0.0]])
    >>> [round(x, 6) for x in a]
    [1.413914, 0.707007]
    """
    check_choice("reach", reach, Reach)
    check_choice("single", single, Single)
    check(rewards, weight=weight, gamma=gamma)
    members = scored(rewards)
    is_raw = len(members) == 1 and single == "raw"
    outcomes = [entries[-1] or 0.0 for entries in members]
    sums = [_sum(entries, weight) for entries in members]
    columns = _columns(members)
    outcome_scale, sum_scale = sample_std(outcomes), sample_std(sums)
    column_scales = [sample_std(column) for column in columns]
    result: Advantages = []
    for entries in rewards:
        if entries is None:
            result.append(None)
            continue
        if len(entries) == 1:
            alone = _sum(entries, weight)
            result.append([alone if is_raw else standardized(alone, *sum_scale, EPSILON)])
            continue
        last = entries[-1] or 0.0
        base = last if is_raw else standardized(last, *outcome_scale, EPSILON)
        process = [
            (entry or 0.0) if is_raw else standardized(entry, *scale, EPSILON)
            for entry, scale in zip(entries[:-1], column_scales, strict=False)
        ]
        if reach == "rest":
            process = accumulated(process, gamma)
        result.append([*(base + weight * each for each in process), base])
    return result


def _sum(entries: Entries, weight: float) -> float:
    return (entries[-1] or 0.0) + weight * math.fsum(entry or 0.0 for entry in entries[:-1])


def _columns(members: list[Entries]) -> list[list[float]]:
    """Return the process rewards at each turn, of the members that have one there."""
    longest = max((len(entries) for entries in members), default=1)
    columns: list[list[float]] = [[] for _ in range(longest - 1)]
    for entries in members:
        for column, entry in zip(columns, entries[:-1], strict=False):
            if entry is not None:
                column.append(entry)
    return columns
