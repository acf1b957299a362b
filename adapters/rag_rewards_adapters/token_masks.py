"""Turns in the structures of trainers: masks of the policy's own tokens, and spans of actions.

verl        runs of `response_mask`
TRL         runs of `tool_mask` or `env_mask`
OpenRLHF    `action_ranges`, which are positions in prompt and response
ms-swift    the list of lists `response_token_ids`
SkyRL       runs of `loss_masks`
slime       runs of `Sample.loss_mask`; without a mask, all tokens are own tokens
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rag_rewards.errors import DataError
from rag_rewards.turns.blocks import results_in
from rag_rewards.turns.dialects import DIALECTS, dialect_of
from rag_rewards.turns.turn import TurnRow

Span = tuple[int, int]
"""A half-open range of token positions."""


def runs(mask: Sequence[int]) -> list[Span]:
    """Return the runs of ones of a mask.

    >>> runs([0, 1, 1, 0, 1])
    [(1, 3), (4, 5)]
    """
    spans: list[Span] = []
    start = -1
    for i, own in enumerate(mask):
        if own and start < 0:
            start = i
        elif not own and start >= 0:
            spans.append((start, i))
            start = -1
    if start >= 0:
        spans.append((start, len(mask)))
    return spans


def spans_of_lists(turns: Sequence[Sequence[int]]) -> list[Span]:
    """Return the spans of the turns of a response that consists of their own tokens alone.

    >>> spans_of_lists([[5, 6], [7]])
    [(0, 2), (2, 3)]
    """
    spans: list[Span] = []
    at = 0
    for tokens in turns:
        spans.append((at, at + len(tokens)))
        at += len(tokens)
    return spans


def spans_in_response(ranges: Sequence[Span], prompt_tokens: int) -> list[Span]:
    """Return ranges of positions in prompt and response as spans of the response.

    Raises DataError for a range that begins inside the prompt.

    >>> spans_in_response([(10, 12), (15, 18)], 10)
    [(0, 2), (5, 8)]
    """
    for i, (start, _) in enumerate(ranges):
        if start < prompt_tokens:
            raise DataError(
                f"begins at {start}, inside the prompt of {prompt_tokens} tokens",
                f"action_ranges[{i}]",
            )
    return [(start - prompt_tokens, end - prompt_tokens) for start, end in ranges]


def turns_of_mask(
    token_ids: Sequence[int],
    mask: Sequence[int] | None,
    decode: Callable[[Sequence[int]], str],
    dialect: str = "auto",
) -> list[TurnRow]:
    """Return the turns of a response from the mask of the policy's own tokens.

    Each run of ones is a turn, and the tokens after it are its observation. The results are read
    from the observation. Without a mask, all tokens are one turn. Raises DataError if the mask and
    the tokens do not have the same length, or if no token is the policy's own.
    """
    if mask is not None and len(mask) != len(token_ids):
        raise DataError(
            f"has {len(mask)} values for {len(token_ids)} tokens: give one value per token", "mask"
        )
    return turns_of_spans(
        token_ids, [(0, len(token_ids))] if mask is None else runs(mask), decode, dialect
    )


def turns_of_spans(
    token_ids: Sequence[int],
    spans: Sequence[Span],
    decode: Callable[[Sequence[int]], str],
    dialect: str = "auto",
) -> list[TurnRow]:
    """Return the turns of a response from the spans of the policy's own tokens.

    Raises DataError if there is no span.
    """
    if not spans:
        raise DataError("contains no token of the policy", "mask")
    ends = [start for start, _ in spans[1:]] + [len(token_ids)]
    texts = [decode(token_ids[start:end]) for start, end in spans]
    observations = [
        decode(token_ids[end:after]) if after > end else None
        for (_, end), after in zip(spans, ends, strict=True)
    ]
    tags = DIALECTS.get(dialect) or dialect_of(texts, list(observations), has_tools=False)
    return [
        TurnRow(
            text=text,
            observation=observation,
            results=results_in(observation, tags) if observation and tags.block else None,
            token_span=span,
        )
        for text, observation, span in zip(texts, observations, spans, strict=True)
    ]
