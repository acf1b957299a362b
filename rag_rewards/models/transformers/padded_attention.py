"""Attention by operations of torch that take sequences of equal length.

Runs of similar length are computed together, with padding at their ends. These operations of torch
are private: `scaled_dot_product_attention` does not return log Σ exp, and `flex_attention` does so
only on a GPU, by a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rag_rewards.models.runs import Run, similar_runs
from rag_rewards.models.transformers.attention_kernels import NotInTreeError
from rag_rewards.models.transformers.modules import import_torch


class PaddedAttention:
    """Attention to runs of similar length at a time (see `AttentionKernel`)."""

    needs_equal_lengths = True

    def __init__(self) -> None:
        self._runs: Sequence[Run] = ()
        self._parts: list[_Part] = []

    def to_runs(
        self, runs: Sequence[Run], query: Any, key: Any, value: Any, scale: float
    ) -> tuple[Any, Any]:
        if runs is not self._runs:
            self._runs = runs
            self._parts = [_Part.of(part, query.device) for part in similar_runs(runs)]
        results = []
        for part in self._parts:
            of_part = [rows[:, :, part.rows] for rows in (query, key, value)]
            results.append(_to_equal_runs(of_part[0], of_part[1], of_part[2], part.count, scale))
        if len(results) == 1 and self._parts[0].own is None:
            return results[0]
        torch = import_torch()
        shape = (*query.shape[:3], value.shape[3])
        output = torch.empty(shape, dtype=torch.float32, device=query.device)
        total = torch.empty(shape[:3], dtype=torch.float32, device=query.device)
        for part, (its_output, its_total) in zip(self._parts, results, strict=True):
            if part.own is None:
                output[:, :, part.rows], total[:, :, part.rows] = its_output, its_total
            else:
                rows = part.rows[part.own]
                output[:, :, rows] = its_output[:, :, part.own]
                total[:, :, rows] = its_total[:, :, part.own]
        return output, total

    def to_block(self, query: Any, key: Any, value: Any, scale: float) -> tuple[Any, Any]:
        # The queries of all heads that share a key are rows of the same matrix, so that keys are
        # not repeated.
        heads, rows = query.shape[1:3]
        shared = key.shape[1]
        stacked = query.reshape(1, shared, heads // shared * rows, query.shape[3])
        output, total = _attention(stacked, key, value, False, scale)
        return output.reshape(1, heads, rows, value.shape[3]), total.reshape(1, heads, rows)


@dataclass(frozen=True)
class _Part:
    """Runs of a step that are computed together.

    count  number of runs
    rows   rows of the step in the order of the runs: a slice, or [count · L] with padded runs
    own    places in `rows` that are not padding; None for a slice
    """

    count: int
    rows: Any
    own: Any = None

    @classmethod
    def of(cls, runs: Sequence[tuple[int, int]], device: Any) -> _Part:
        """Return runs by their first row and their length. The last row is the padding of a run."""
        start, length = runs[0]
        if all(run == (start + number * length, length) for number, run in enumerate(runs)):
            return cls(len(runs), slice(start, start + len(runs) * length))
        torch = import_torch()
        firsts, lengths = torch.tensor(runs, device=device).T[:, :, None]
        place = torch.arange(max(length for _, length in runs), device=device)[None]
        rows = firsts + torch.minimum(place, lengths - 1)
        own = (place < lengths).flatten().nonzero()[:, 0]
        return cls(len(runs), rows.flatten(), own)


def _to_equal_runs(query: Any, key: Any, value: Any, count: int, scale: float) -> tuple[Any, Any]:
    """Return the attention within each of `count` runs of equal length, and log Σ exp."""
    heads, rows = query.shape[1:3]
    each = heads // key.shape[1]
    output, total = _attention(
        _by_run(query, count, 1),
        _by_run(key, count, each),
        _by_run(value, count, each),
        True,
        scale,
    )
    output = output.transpose(0, 1).reshape(1, heads, rows, value.shape[3])
    return output, total.transpose(0, 1).reshape(1, heads, rows)


def _by_run(rows: Any, count: int, each: int) -> Any:
    """Return rows [1, K, R·T, D] as [R, K·each, T, D], with each head repeated `each` times."""
    split = rows[0].unflatten(1, (count, -1)).transpose(0, 1)
    return split if each == 1 else split.repeat_interleave(each, 1)


def _attention(query: Any, key: Any, value: Any, causal: bool, scale: float) -> tuple[Any, Any]:
    """Return attention in float32 and log Σ exp of the scores."""
    aten = import_torch().ops.aten
    half = query.element_size() == 2
    if query.device.type == "cpu":
        output, total = aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, scale=scale
        )
    elif query.device.type == "cuda" and half:
        output, total = aten._scaled_dot_product_flash_attention(
            query, key, value, 0.0, causal, scale=scale
        )[:2]
    elif query.device.type == "cuda":
        output, total = aten._scaled_dot_product_efficient_attention(
            query, key, value, None, True, 0.0, causal, scale=scale
        )[:2]
        total = total[:, :, : query.shape[2]]
    else:
        raise NotInTreeError(f"attention with log Σ exp on {query.device.type}")
    return output.float(), total.float()
