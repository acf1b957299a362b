"""The interface of kernels: attention with the logarithm of its denominator.

padded_attention      torch on a CPU, and on a GPU in float32 or with torch < 2.12
ragged_attention      torch on a GPU, bfloat16 and float16
flashinfer_attention  FlashInfer on a GPU, bfloat16 and float16
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from rag_rewards.models.runs import Run

Attention = Literal["torch", "flashinfer"]
"""The library that computes attention to shared keys."""


class NotInTreeError(Exception):
    """Attention that blocks of keys cannot express, or a device without a suitable operation."""


class AttentionKernel(Protocol):
    """Attention of N rows with H heads to keys and values with K heads, where K divides H.

    Both methods take query [1, H, N, D], key [1, K, M, D], value [1, K, M, V] and the scale of the
    scores. They return the output [1, H, N, V], and log Σ exp of the scores in nats [1, H, N], both
    in float32.

    needs_equal_lengths  whether V must equal D
    """

    needs_equal_lengths: bool

    def to_runs(
        self, runs: Sequence[Run], query: Any, key: Any, value: Any, scale: float
    ) -> tuple[Any, Any]:
        """Return the attention of each row to the rows of its own run up to itself."""

    def to_block(self, query: Any, key: Any, value: Any, scale: float) -> tuple[Any, Any]:
        """Return the attention of all rows to all keys."""
