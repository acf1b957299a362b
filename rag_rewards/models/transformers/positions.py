"""The length of a sequence from which the encodings of its positions depend on this length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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


@contextmanager
def restore_frequencies(model: Any) -> Iterator[None]:
    """Restore the frequencies of RoPE after the block.

    RoPE of the kinds dynamic and longrope keeps the frequencies of earlier sequences, so that a
    model in training would compute other values after its rollouts are scored.
    """
    states = [
        (module, _state(module), {name: (at, at.clone()) for name, at in _buffers(module).items()})
        for module in model.modules()
        if hasattr(module, "inv_freq") or hasattr(module, "rope_init_fn")
    ]
    try:
        yield
    finally:
        for module, attributes, buffers in states:
            vars(module).update(attributes)
            for name, (buffer, values) in buffers.items():
                buffer.copy_(values)
                module._buffers[name] = buffer


def _state(rope: Any) -> dict[str, Any]:
    """Return the attributes that the forward pass of a module of RoPE can change."""
    names = ("max_seq_len_cached", "attention_scaling")
    return {name: value for name, value in vars(rope).items() if name.endswith(names)}


def _buffers(rope: Any) -> dict[str, Any]:
    return {name: each for name, each in rope._buffers.items() if name.endswith("inv_freq")}


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
