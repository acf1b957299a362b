"""Doubles of attention that runs on a GPU only, computed by definition on any device.

`varlen_attn` stands for that of torch, and `FlashInfer` for the module `flashinfer`.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch


def by_definition(
    query: Any, key: Any, value: Any, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention [N, H, V] of rows [N, H, D] to keys [M, K, D], and log Σ exp [N, H]."""
    each = query.shape[1] // key.shape[1]
    keys, values = (part.repeat_interleave(each, 1).double() for part in (key, value))
    scores = torch.einsum("nhd,mhd->nhm", query.double(), keys) * scale
    if causal:
        later = torch.ones(len(query), len(key), dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later[:, None], -torch.inf)
    output = torch.einsum("nhm,mhv->nhv", scores.softmax(-1), values)
    return output.to(query.dtype), scores.logsumexp(-1).float()


def of_sequences(
    query: Any, key: Any, value: Any, rows: Any, keys: Any, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention of each sequence to its own keys, by the bounds of both."""
    bounds = zip(pairwise(rows.tolist()), pairwise(keys.tolist()), strict=True)
    parts = [
        by_definition(query[a:b], key[c:d], value[c:d], causal, scale) for (a, b), (c, d) in bounds
    ]
    outputs, totals = zip(*parts, strict=True)
    return torch.cat(outputs), torch.cat(totals)


def varlen_attn(
    query: Any,
    key: Any,
    value: Any,
    cu_seq_q: Any,
    cu_seq_k: Any,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Any = None,
    block_table: Any = None,
    num_splits: int | None = None,
) -> tuple[Any, Any]:
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert (max_q, max_k) == (cu_seq_q.diff().max(), cu_seq_k.diff().max())
    assert return_aux.lse
    assert scale is not None
    assert enable_gqa or query.shape[1] == key.shape[1]
    assert query.shape[2] == key.shape[2] == value.shape[2]
    assert all(part.stride(-1) == 1 for part in (query, key, value))
    causal = {(-1, 0): True, (-1, -1): False}[window_size]
    output, total = of_sequences(query, key, value, cu_seq_q, cu_seq_k, causal, scale)
    return output, total.t()


class FlashInfer:
    """The module `flashinfer`, whose log Σ exp has the base 2."""

    @staticmethod
    def single_prefill_with_kv_cache(
        q: Any, k: Any, v: Any, *, causal: bool, sm_scale: float, return_lse: bool
    ) -> tuple[Any, Any]:
        assert return_lse
        assert all(rows.stride(-1) == 1 for rows in (q, k, v))
        output, total = by_definition(q, k, v, causal, sm_scale)
        return output, total / math.log(2)

    class BatchPrefillWithRaggedKVCacheWrapper:
        plans = 0

        def __init__(self, float_workspace_buffer: Any) -> None:
            assert float_workspace_buffer.dtype == torch.uint8

        def plan(
            self,
            qo_indptr: Any,
            kv_indptr: Any,
            num_qo_heads: int,
            num_kv_heads: int,
            head_dim_qk: int,
            head_dim_vo: int,
            *,
            causal: bool,
            sm_scale: float,
            q_data_type: Any,
            disable_split_kv: bool = False,
        ) -> None:
            # Parts of the keys need a workspace that grows with the heads that share keys.
            assert disable_split_kv
            assert qo_indptr.dtype == kv_indptr.dtype == torch.int32
            type(self).plans += 1
            self.shape = (num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo)
            self.kind = q_data_type
            self.sequences = (qo_indptr, kv_indptr, causal, sm_scale)

        def run(self, q: Any, k: Any, v: Any, *, return_lse: bool) -> tuple[Any, Any]:
            assert self.shape == (q.shape[1], k.shape[1], q.shape[2], v.shape[2])
            assert self.kind == q.dtype
            assert return_lse
            assert all(rows.is_contiguous() for rows in (q, k, v))
            output, total = of_sequences(q, k, v, *self.sequences)
            return output, total / math.log(2)
