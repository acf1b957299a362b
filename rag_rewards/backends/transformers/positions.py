"""The length of a sequence from which the encodings of its positions depend on this length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rag_rewards.evidence.protocols import ScoreRequest


def shareable_length(causal: Any) -> float:
    """Return up to how many tokens of a sequence the encoding of a position is always the same.

    RoPE of the kinds dynamic and longrope has other frequencies for longer sequences. Tokens that
    are shared run before the length of each sequence is reached, and would have wrong frequencies.
    """
    config = causal.config.get_text_config()
    lengths = (_length(rope, config) for rope in _ropes(getattr(config, "rope_parameters", None)))
    return min(lengths, default=float("inf"))


def longest_sequence(requests: Sequence[ScoreRequest]) -> int:
    """Return the number of tokens of the longest sequence of some requests."""
    lengths = (
        len(request.contexts[context]) + len(request.responses[response])
        for request in requests
        for context, response in request.wanted()
    )
    return max(lengths, default=0)


def _ropes(parameters: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the parameters of RoPE, which are one mapping or one for each kind of layers."""
    if isinstance(parameters, Mapping):
        if "rope_type" in parameters:
            yield parameters
        for each in parameters.values():
            yield from _ropes(each)


def _length(rope: Mapping[str, Any], config: Any) -> float:
    if "dynamic" not in rope["rope_type"] and rope["rope_type"] != "longrope":
        return float("inf")
    original = rope.get("original_max_position_embeddings")
    return float(min(original or float("inf"), config.max_position_embeddings))
