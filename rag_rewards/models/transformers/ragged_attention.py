"""Attention by `torch.nn.attention.varlen`, to sequences of any lengths, one after another.

Runs need no padding, and heads that share keys read the same ones. It runs on a GPU, in bfloat16 or
float16.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

from rag_rewards.models.runs import Run
from rag_rewards.models.transformers.modules import import_torch

_CAUSAL = (-1, 0)
_ALL = (-1, -1)
"""Windows: the numbers of keys before and after a row that it attends to. −1 means all."""


def can_be_ragged(query: Any) -> bool:
    """Return whether torch has this attention for queries of this device and precision."""
    return query.device.type == "cuda" and query.element_size() == 2 and _is_in_torch()


@cache
def _is_in_torch() -> bool:
    """Return whether torch has this attention for heads that share keys (since 2.12)."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return "enable_gqa" in inspect.signature(varlen_attn).parameters


class RaggedAttention:
    """Attention to all runs of a step at a time (see `AttentionKernel`)."""

    needs_equal_lengths = True

    def __init__(self) -> None:
        self._runs: Sequence[Run] = ()
        self._lengths: list[int] = []
        self._starts: dict[tuple[int, ...], Any] = {}

    def to_runs(
        self, runs: Sequence[Run], query: Any, key: Any, value: Any, scale: float
    ) -> tuple[Any, Any]:
        if runs is not self._runs:
            self._runs, self._lengths = runs, [len(run.tokens) for run in runs]
            self._starts.clear()
        return self._attend(query, key, value, self._lengths, self._lengths, _CAUSAL, scale)

    def to_block(self, query: Any, key: Any, value: Any, scale: float) -> tuple[Any, Any]:
        return self._attend(query, key, value, query.shape[2:3], key.shape[2:3], _ALL, scale)

    def _attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        rows: Sequence[int],
        keys: Sequence[int],
        window: tuple[int, int],
        scale: float,
    ) -> tuple[Any, Any]:
        """Return the attention of sequences of `rows` to sequences of `keys`, and log Σ exp."""
        from torch.nn.attention import varlen

        output, total = varlen.varlen_attn(
            by_token(query),
            by_token(key),
            by_token(value),
            self._starts_of(rows, query.device),
            self._starts_of(keys, query.device),
            max(rows),
            max(keys),
            return_aux=varlen.AuxRequest(lse=True),
            scale=scale,
            window_size=window,
            enable_gqa=True,
        )
        return by_head(output), total.float()[None]

    def _starts_of(self, lengths: Sequence[int], device: Any) -> Any:
        """Return the start of each sequence and the end of the last one, once for all layers."""
        name = tuple(lengths)
        if name not in self._starts:
            self._starts[name] = starts(lengths, device)
        return self._starts[name]


def starts(lengths: Sequence[int], device: Any) -> Any:
    """Return the start of each sequence [S], and the end of the last one, as int32 [S + 1]."""
    torch = import_torch()
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


def by_token(rows: Any) -> Any:
    """Return rows [1, H, N, D] as [N, H, D], without a copy."""
    return rows[0].transpose(0, 1)


def by_head(rows: Any) -> Any:
    """Return rows [N, H, D] as [1, H, N, D] in float32."""
    return rows.transpose(0, 1)[None].float()
