"""Which rows changed between two files: wins, ties and losses, and the largest changes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from rag_rewards.metrics.scored_values import ScoreValue
from rag_rewards.report.comparison.values import short_name, value_of
from rag_rewards.rows import ScoredRow

EQUAL = 1e-9
"""Two values whose difference is at most this are equal."""


class Outcomes(msgspec.Struct, frozen=True):
    """The number of common rows whose value is higher, equal or lower in the second file."""

    name: str
    higher: int
    equal: int
    lower: int


class Change(msgspec.Struct, frozen=True):
    """A row whose reward or `correct` differs between two files, with its positions in both."""

    base: int
    other: int
    reward: float | None
    correct: float | None


Pairs = Sequence[tuple[ScoredRow, ScoredRow]]


def outcomes(pairs: Pairs, metric: ScoreValue) -> Outcomes:
    """Count the rows whose value is higher, equal or lower in the second file.

    Rows without the value in one of the files are left out.
    """
    changes = [_minus(value_of(other, metric), value_of(base, metric)) for base, other in pairs]
    present = [change for change in changes if change is not None]
    higher = sum(change > EQUAL for change in present)
    lower = sum(change < -EQUAL for change in present)
    return Outcomes(short_name(metric), higher, len(present) - higher - lower, lower)


def largest_changes(
    base: Sequence[ScoredRow],
    other: Sequence[ScoredRow],
    positions: Sequence[tuple[int, int]],
    *,
    correct_first: bool,
) -> list[Change]:
    """Return the rows whose reward or `correct` differs, the largest change first.

    The order is that of the change of the reward. With `correct_first`, for rewards of different
    recipes, it is that of the change of `correct`, and then that of the reward.
    """
    changes = []
    for i, j in positions:
        reward = _minus(other[j].reward, base[i].reward)
        correct = _minus(other[j].correct, base[i].correct)
        if _size(reward) > EQUAL or _size(correct) > EQUAL:
            changes.append(Change(i, j, reward, correct))

    def order(change: Change) -> tuple[float, ...]:
        sizes = [_size(change.reward), _size(change.correct)]
        return tuple(-size for size in (reversed(sizes) if correct_first else sizes))

    return sorted(changes, key=order)


def _minus(other: float | None, base: float | None) -> float | None:
    return None if other is None or base is None else other - base


def _size(change: float | None) -> float:
    return 0.0 if change is None or math.isnan(change) else abs(change)
