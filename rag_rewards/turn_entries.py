"""Arithmetic of turn entries: the rewards of the turns of a rollout, whose sum is its reward.

An entry is None for a turn without a reward. A rollout without entries has its reward at its last
turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

TurnEntries = tuple[float | None, ...]
SUMMED = "turn rewards are summed: this trainer has no turn credit"
"""The message for a trainer that can use only the sum of the rewards of turns."""


def total(entries: Sequence[float | None]) -> float:
    """Return the sum of the entries. None adds nothing.

    >>> total((0.5, None, 1.0))
    1.5
    """
    return math.fsum(entry for entry in entries if entry is not None)


def scaled(entries: TurnEntries, factor: float) -> TurnEntries:
    """Return every entry times a factor.

    >>> scaled((0.5, None, 1.0), 2)
    (1.0, None, 2.0)
    """
    return tuple(None if entry is None else factor * entry for entry in entries)


def with_total(entries: TurnEntries, value: float | None) -> TurnEntries:
    """Return entries with another last one, so that their sum is a value.

    >>> with_total((0.25, None, 1.0), 0.5)
    (0.25, None, 0.25)
    """
    if not entries or value is None:
        return ()
    return (*entries[:-1], value - total(entries[:-1]))


def combined(parts: Sequence[tuple[float, TurnEntries, float | None]]) -> TurnEntries:
    """Return the sum of weighted parts, turn by turn.

    Each part is its weight, its entries and its value. A part without entries has its value at the
    last turn. The result is empty if no part has entries, if a value is None, or if the parts do
    not have the same number of turns.

    >>> combined([(1.0, (0.5, None, 1.0), 1.5), (0.5, (), 2.0)])
    (0.5, None, 2.0)
    """
    lengths = {len(entries) for _, entries, _ in parts if entries}
    if len(lengths) != 1 or any(value is None for _, _, value in parts):
        return ()
    size = lengths.pop()
    sums: list[float | None] = [None] * size
    for weight, entries, value in parts:
        for i, entry in enumerate(entries or (*[None] * (size - 1), value)):
            if entry is not None:
                sums[i] = (sums[i] or 0.0) + weight * entry
    return tuple(sums)


def turn_rewards(
    entries: TurnEntries, value: float | None, turns: int | None
) -> TurnEntries | None:
    """Return the entries of a scored row, or None for a row without turns.

    A reward without entries is at the last turn.

    >>> turn_rewards((), 1.0, 3), turn_rewards((), 1.0, None), turn_rewards((0.5, 1.0), 1.5, None)
    ((None, None, 1.0), None, (0.5, 1.0))
    """
    if entries:
        return entries
    return None if turns is None else (*[None] * (turns - 1), value)
