"""Attention by FlashInfer, the extra `flashinfer`, on a GPU in bfloat16 or float16.

FlashInfer selects the kernels for the GPU, such as FlashAttention 3 on Hopper. Its log Σ exp has
the base 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rag_rewards.errors import needs_extra
from rag_rewards.models.runs import Run
from rag_rewards.models.transformers.modules import import_torch
from rag_rewards.models.transformers.ragged_attention import by_head, by_token, starts

_WORKSPACE = 128 << 20
"""Number of bytes that FlashInfer may use for intermediate results."""


class FlashInferAttention:
    """Attention to all runs of a step at a time (see `AttentionKernel`)."""

    needs_equal_lengths = False

    def __init__(self) -> None:
        self._runs: Sequence[Run] = ()
        self._kind: tuple[Any, ...] = ()
        self._wrapper: Any = None

    def to_runs(
        self, runs: Sequence[Run], query: Any, key: Any, value: Any, scale: float
    ) -> tuple[Any, Any]:
        self._plan(runs, query, key, value, scale)
        rows = [by_token(part).contiguous() for part in (query, key, value)]
        output, total = self._wrapper.run(*rows, return_lse=True)
        return _result(output, total)

    def to_block(self, query: Any, key: Any, value: Any, scale: float) -> tuple[Any, Any]:
        # FlashInfer reads keys with any strides, so that shared keys are not copied.
        query, key, value = by_token(query), by_token(key), by_token(value)
        output, total = import_flashinfer().single_prefill_with_kv_cache(
            query, key, value, causal=False, sm_scale=scale, return_lse=True
        )
        return _result(output, total)

    def _plan(self, runs: Sequence[Run], query: Any, key: Any, value: Any, scale: float) -> None:
        """Prepare FlashInfer for these runs and for layers with these heads."""
        torch, device = import_torch(), query.device
        heads = (query.shape[1], key.shape[1], query.shape[3], value.shape[3])
        kind = (heads, query.dtype, scale)
        if runs is self._runs and kind == self._kind:
            return
        if self._wrapper is None:
            workspace = torch.empty(_WORKSPACE, dtype=torch.uint8, device=device)
            self._wrapper = import_flashinfer().BatchPrefillWithRaggedKVCacheWrapper(workspace)
        ends = starts([len(run.tokens) for run in runs], device)
        self._wrapper.plan(
            ends,
            ends,
            *heads,
            causal=True,
            sm_scale=scale,
            q_data_type=query.dtype,
            # Outputs of parts of the keys can exceed the workspace, because their number grows with
            # the number of heads that share keys.
            disable_split_kv=True,
        )
        self._runs, self._kind = runs, kind


def import_flashinfer() -> Any:
    """Import FlashInfer. Raises MissingExtraError if it is not installed."""
    with needs_extra("flashinfer"):
        import flashinfer
    return flashinfer


def _result(output: Any, total: Any) -> tuple[Any, Any]:
    """Return an output [N, H, V] and its log₂ Σ exp [N, H] as a kernel does, in nats."""
    return by_head(output), (total.float() * math.log(2)).t()[None]
