"""Rewards and advantages of turns as values of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from rag_rewards.errors import DataError, UsageError

Spans = Sequence[tuple[int, int]]
"""The half-open range of the own tokens of each turn."""


def place(rewards: Sequence[float | None], spans: Spans, length: int) -> list[float]:
    """Return rewards of tokens: the reward of a turn is at its last own token, all else is 0.

    A turn without own tokens passes its reward to the next turn that has some, and the last turn
    to the one before. Raises DataError if no turn has own tokens.

    >>> place([0.27, None, 1.0], [(0, 3), (3, 3), (7, 9)], 9)
    [0.0, 0.0, 0.27, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    """
    _check(rewards, spans, length)
    filled = [end - 1 for start, end in spans if end > start]
    if not filled:
        raise DataError("no turn has a token of the policy", "token_span")
    tokens = [0.0] * length
    later = iter(filled)
    at = next(later)
    for reward, (start, end) in zip(rewards, spans, strict=True):
        tokens[at] += reward or 0.0
        if end > start:
            at = next(later, at)
    return tokens


def spread(advantages: Sequence[float], spans: Spans, length: int) -> list[float]:
    """Return advantages of tokens: every own token of a turn has its advantage, all else is 0.

    >>> spread([0.4, -0.2], [(0, 3), (7, 9)], 9)
    [0.4, 0.4, 0.4, 0.0, 0.0, 0.0, 0.0, -0.2, -0.2]
    """
    _check(advantages, spans, length)
    tokens = [0.0] * length
    for advantage, (start, end) in zip(advantages, spans, strict=True):
        tokens[start:end] = [advantage] * (end - start)
    return tokens


def _check(values: Sequence[float | None], spans: Spans, length: int) -> None:
    if len(values) != len(spans):
        raise UsageError(f"{len(values)} values for {len(spans)} spans: give one span per turn")
    before = 0
    for i, (start, end) in enumerate(spans):
        if not before <= start <= end <= length:
            raise DataError(
                f"[{start}, {end}] must begin at {before} or later and end at {length} or earlier",
                f"turns[{i}].token_span",
            )
        before = end
