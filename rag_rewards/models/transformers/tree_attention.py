"""Attention of a step to keys that are stored once, as an attention function of transformers.

Attention to several blocks of keys is computed block by block. Each block has an output o and
l = log Σ exp of its scores. Two blocks have together

    o = o₁ + σ(l₂ − l₁)·(o₂ − o₁),    l = log(exp l₁ + exp l₂)

with the logistic function σ. Therefore all responses of a group read the same keys of their
context, and no mask is necessary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

from rag_rewards.errors import UsageError
from rag_rewards.models.runs import Step
from rag_rewards.models.transformers.attention_kernels import (
    Attention,
    AttentionKernel,
    NotInTreeError,
)
from rag_rewards.models.transformers.flashinfer_attention import (
    FlashInferAttention,
    import_flashinfer,
)
from rag_rewards.models.transformers.modules import import_torch
from rag_rewards.models.transformers.padded_attention import PaddedAttention
from rag_rewards.models.transformers.ragged_attention import RaggedAttention, can_be_ragged

NAME = "rag_rewards_tree"
"""Name of the attention function."""

_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
"""Kinds of layers in which each row attends to all keys before it, up to a distance."""

_OPTIONS = {"dropout", "is_causal", "position_ids", "cache_position", "position_embeddings"}
"""Options of attention functions that do not change causal attention without dropout."""


class TreeAttention:
    """The keys and values of the current path, and the attention of the current step to them.

    capacity   number of tokens of the longest path
    attention  library that computes the attention
    """

    def __init__(self, capacity: int, attention: Attention = "torch") -> None:
        self.capacity = capacity
        self._attention = attention
        self._kernels: dict[Any, AttentionKernel] = {}
        self._step = Step((), (), ())
        self._path: dict[int, tuple[Any, Any]] = {}

    def of(self, step: Step) -> TreeAttention:
        """Return the attention of the next step."""
        self._step = step
        return self

    def attend(self, layer: int, query: Any, key: Any, value: Any, scale: float) -> Any:
        """Return the output [1, H, N, V] of a layer in float32, and keep what later steps need.

        query  [1, H, N, D]
        key    [1, K, N, D] with K heads, where H is a multiple of K
        value  [1, K, N, V], where V is at most D
        """
        kernel = self._kernel_of(query)
        length, missing = value.shape[3], key.shape[3] - value.shape[3]
        if missing and kernel.needs_equal_lengths:  # latent attention
            value = import_torch().nn.functional.pad(value, (0, missing))
        output, total = kernel.to_runs(self._step.runs, query, key, value, scale)
        for block in self._step.blocks:
            keys, values = self._path[layer] if block.of_path else (key, value)
            part, its_total = kernel.to_block(
                query[:, :, block.rows], keys[:, :, block.keys], values[:, :, block.keys], scale
            )
            _merge(output[:, :, block.rows], total[:, :, block.rows], part, its_total)
        self._keep(layer, key, value)
        return output[..., :length]

    def _kernel_of(self, query: Any) -> AttentionKernel:
        """Return the kernel of a device, which keeps tensors there. Layers can be on several."""
        if query.device not in self._kernels:
            self._kernels[query.device] = choose_kernel(self._attention, query)
        return self._kernels[query.device]

    def _keep(self, layer: int, key: Any, value: Any) -> None:
        if not self._step.path_rows:
            return
        if layer not in self._path:
            shape = (1, key.shape[1], self.capacity, key.shape[3])
            values = (1, value.shape[1], self.capacity, value.shape[3])
            self._path[layer] = key.new_empty(shape), value.new_empty(values)
        keys, values = self._path[layer]
        for rows, position in self._step.path_rows:
            place = slice(position, position + rows.stop - rows.start)
            keys[:, :, place] = key[:, :, rows]
            values[:, :, place] = value[:, :, rows]


@contextmanager
def attention_in_tree(
    causal: Any, capacity: int, attention: Attention = "torch"
) -> Iterator[TreeAttention]:
    """Use this attention in all layers of a model, with paths of at most `capacity` tokens.

    Raises NotInTreeError for windows that are shorter than a path, and for layers without a
    window that do not attend to all keys. The latter can have the right values for short sequences.
    """
    from transformers import AttentionInterface

    config = causal.config.get_text_config()
    if unknown := sorted(set(getattr(config, "layer_types", None) or ()) - _LAYERS):
        raise NotInTreeError(f"layers of the kind {', '.join(unknown)}")
    for name in ("sliding_window", "attention_chunk_size"):
        window = getattr(config, name, None)
        if window is not None and capacity > window:
            raise NotInTreeError(f"{name}={window}")
    AttentionInterface.register(NAME, tree_attention)
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield TreeAttention(capacity, attention)
    finally:
        config._attn_implementation = before


def tree_attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    tree: TreeAttention,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Any, None]:
    """Return the attention [1, N, H, V] of a layer to its step, for transformers."""
    if attention_mask is not None:
        raise NotInTreeError("attention with a mask")
    if unknown := sorted(_given(options) - _OPTIONS):
        raise NotInTreeError(f"attention with {', '.join(unknown)}")
    if sliding_window is not None and tree.capacity > sliding_window:
        raise NotInTreeError(f"a window of {sliding_window} tokens")
    if value.shape[-1] > key.shape[-1]:
        raise NotInTreeError("attention with values that are longer than keys")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = tree.attend(module.layer_idx, query, key, value, scale)
    return output.to(query.dtype).transpose(1, 2).contiguous(), None


def check_attention(attention: str, causal: Any, is_live: bool) -> None:
    """Raise UsageError for an unknown library, and for FlashInfer on a CPU or in float32.

    The latter does not apply to a live model, which DeepSpeed moves and converts later. Raises
    MissingExtraError if FlashInfer is not installed.
    """
    if attention not in get_args(Attention):
        choices = ", ".join(get_args(Attention))
        raise UsageError(f"attention must be one of {choices}, found {attention!r}")
    if attention == "flashinfer":
        if not is_live:
            _check_flashinfer(causal)
        import_flashinfer()


def _check_flashinfer(place: Any) -> None:
    """Raise UsageError if FlashInfer cannot run on the device or in the precision of a tensor."""
    if place.device.type != "cuda":
        raise UsageError(
            f"attention='flashinfer' requires a GPU, found the device {place.device.type}: use "
            "attention='torch'"
        )
    dtype = str(place.dtype).removeprefix("torch.")
    if dtype not in ("bfloat16", "float16"):
        raise UsageError(
            f"attention='flashinfer' requires bfloat16 or float16, found {dtype}: load the model "
            "in one of them, or use attention='torch'"
        )


def choose_kernel(attention: Attention, query: Any) -> AttentionKernel:
    """Return the kernel for queries on this device and of this precision.

    Raises UsageError if FlashInfer cannot run there.
    """
    if attention == "flashinfer":
        _check_flashinfer(query)
        return FlashInferAttention()
    return RaggedAttention() if can_be_ragged(query) else PaddedAttention()


def _given(options: dict[str, Any]) -> set[str]:
    return {name for name, value in options.items() if value is not None and value is not False}


def _merge(output: Any, total: Any, part: Any, its_total: Any) -> None:
    """Add the attention to a block to `output` and `total`, in place."""
    torch = import_torch()
    output.lerp_(part, torch.sigmoid(its_total - total)[..., None])
    torch.logaddexp(total, its_total, out=total)
