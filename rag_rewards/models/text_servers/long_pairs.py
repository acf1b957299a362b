"""Probabilities of text pairs whose premises can be too long for a model on a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rag_rewards.errors import shorten
from rag_rewards.models.nli.pieces import HypothesisTooLong
from rag_rewards.models.text_servers.long_texts import halves, send_divided

Pair = tuple[str, str]
Both = tuple[float, float]


async def probabilities_of_parts(
    pairs: Sequence[Pair],
    send: Callable[[Sequence[Pair]], Awaitable[Sequence[Both]]],
    too_long_is_error: bool,
) -> list[Both]:
    """Return the highest probabilities of a part of each premise.

    A pair whose hypothesis is too long has the probabilities 0, or raises HypothesisTooLong.
    """
    try:
        values = await send_divided(pairs, send, _divided)
    except HypothesisTooLong:
        if len(pairs) > 1:  # find the pair
            return [
                both
                for pair in pairs
                for both in await probabilities_of_parts([pair], send, too_long_is_error)
            ]
        if too_long_is_error:
            raise
        return [(0.0, 0.0)]
    return [(max(e for e, _ in parts), max(c for _, c in parts)) for parts in values]


def _divided(pair: Pair) -> list[Pair]:
    premise, hypothesis = pair
    parts = halves(premise, overlap=True)
    if parts is None:
        raise HypothesisTooLong(f"a hypothesis is too long: {shorten(hypothesis, 60)!r}")
    return [(part, hypothesis) for part in parts]
