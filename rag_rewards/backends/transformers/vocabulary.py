"""Log-probabilities from hidden states, with the logits of a part of the vocabulary at a time.

All logits of a group need much memory, and writing them takes longer than computing them.
Therefore the model's own forward pass computes them from hidden states that exist already, for some
rows and, if the head is a linear layer, for a slice of its weights. The soft caps and the scaling
of the model apply to each logit by itself, so that they are right for a slice as well. With any
number m, the denominator is

    log Σᵥ exp zᵥ = m + log Σₖ Σᵥ exp(zᵥ − m)    over the slices k and their tokens v.

The largest logit of the first slice serves as m, since another pass over all logits takes time. If
the sum overflows, m is the largest logit so far.

The logits of all slices use the same memory, because the first write to new memory is slow.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rag_rewards.backends.transformers.modules import import_torch, replaced_forward

SLICE = {"cpu": 1_024, "cuda": 32_768}
"""Number of tokens of the vocabulary whose logits are in memory at a time, per device."""

FEW_ROWS = 256
"""On a CPU, the product of a slice and fewer rows is faster with one row of logits per token."""


class Vocabulary:
    """The head of a causal language model.

    causal    the model
    backbone  the part of the model that computes the hidden states
    float32   compute the logits in float32, whatever the precision of the model

    `slice` is the number of tokens of the vocabulary at a time; None for the whole forward pass of
    the head, which adapters, quantized and sharded weights need. `output_type` is the type of the
    backbone's output.
    """

    def __init__(self, causal: Any, backbone: Any, *, float32: bool) -> None:
        self.output_type: Any = None
        self._causal = causal
        self._backbone = backbone
        self._float32 = float32
        self._head = causal.get_output_embeddings()
        self.slice = SLICE.get(causal.device.type) if _is_linear(self._head) else None

    def logprobs(
        self, hidden: Any, rows: Sequence[int], targets: Sequence[int], size: int
    ) -> array[float]:
        """Return log p of target k at row `rows[k]` of hidden [R, H]: logit − log Σ exp, in nats.

        `size` is the number of rows whose logits are in memory at a time.
        """
        torch = import_torch()
        order = sorted(range(len(rows)), key=rows.__getitem__)
        ascending = [rows[k] for k in order]
        # Once for all parts, because a copy to a GPU waits for the part before.
        at = torch.tensor(ascending, device=hidden.device)
        ids = torch.tensor([targets[k] for k in order], device=hidden.device)
        parts = []
        # Parts of equal size, since a product with few rows is slow.
        size = -(-len(hidden) // -(-len(hidden) // size)) if len(hidden) else size
        for start in range(0, len(hidden), size):
            first = bisect_left(ascending, start)
            last = bisect_left(ascending, start + size)
            if first < last:
                of_part = at[first:last] - start, ids[first:last]
                parts.append(self._of_rows(hidden[start : start + size], *of_part))
        values = array("f", [0.0]) * len(rows)
        for k, value in zip(order, torch.cat(parts).tolist() if parts else (), strict=True):
            values[k] = value
        return values

    def _of_rows(self, hidden: Any, rows: Any, targets: Any) -> Any:
        """Return the log-probabilities [K] of targets [K] at rows [K] of hidden [R, H]."""
        torch = import_torch()
        target_logits, top, total = self._sums(hidden, rows, targets, running=False)
        if not torch.isfinite(total).all():
            target_logits, top, total = self._sums(hidden, rows, targets, running=True)
        return target_logits - (top + total.log())[rows]

    def _sums(self, hidden: Any, rows: Any, targets: Any, *, running: bool) -> tuple[Any, Any, Any]:
        """Return the logits [K] of targets at rows, and m [R] and Σ exp(z − m) [R] of all rows.

        m is the largest logit of the first slice; of all slices so far, if `running`.
        """
        torch = import_torch()
        top = hidden.new_full((len(hidden),), torch.finfo(torch.float32).min, dtype=torch.float32)
        total = torch.zeros_like(top)
        target_logits = torch.zeros(len(rows), dtype=torch.float32, device=hidden.device)
        for start, logits in self._slices(hidden):
            local = targets - start
            inside = (local >= 0) & (local < logits.shape[1])
            selected = logits[rows, local.clamp(0, logits.shape[1] - 1)]
            target_logits = torch.where(inside, selected, target_logits)
            if running or start == 0:
                before, top = top, torch.maximum(top, logits.amax(-1))
                total = total * (before - top).exp_()
            total += logits.sub_(top[:, None]).exp_().sum(-1)
        return target_logits, top, total

    def _slices(self, hidden: Any) -> Iterator[tuple[int, Any]]:
        """Yield the logits [R, S] of each slice in float32, with its first token.

        The logits of a slice are valid until the next one.
        """
        count = self._head.weight.shape[0]
        size = min(self.slice or count, count)
        memory = None
        if self.slice is not None or self._float32:
            kind = import_torch().float32 if self._float32 else self._head.weight.dtype
            memory = hidden.new_empty(len(hidden) * size, dtype=kind)
        for start in range(0, count, size):
            with self._slice_of_head(start, start + size, memory):
                logits = self._logits(hidden)
            yield start, logits

    @contextmanager
    def _slice_of_head(self, start: int, stop: int, memory: Any) -> Iterator[None]:
        """Use a slice of the weights of the head, with logits in `memory`; None for the head."""
        if memory is None:
            yield
            return
        weight, bias = self._head.weight[start:stop], getattr(self._head, "bias", None)
        bias = None if bias is None else bias[start:stop]

        def forward(hidden: Any) -> Any:
            rows = hidden.flatten(0, -2)
            logits = _product(
                rows.to(memory.dtype) if self._float32 else rows,
                weight.to(memory.dtype),
                None if bias is None else bias.to(memory.dtype),
                memory,
            )
            return logits.unflatten(0, hidden.shape[:-1])

        with replaced_forward(self._head, forward):
            yield

    def _logits(self, hidden: Any) -> Any:
        """Return the logits of hidden [R, H] by the model, in float32."""
        torch = import_torch()

        def forward(*args: Any, **options: Any) -> Any:
            return self.output_type(last_hidden_state=hidden[None])

        with replaced_forward(self._backbone, forward):
            dummy = torch.zeros((1, 1), dtype=torch.long, device=hidden.device)
            return self._causal(input_ids=dummy, use_cache=False).logits[0].float()


def _product(hidden: Any, weight: Any, bias: Any, memory: Any) -> Any:
    """Return hidden [R, H] · weight [S, H]ᵀ + bias [S] as [R, S], in the first part of `memory`."""
    torch = import_torch()
    count, size = len(hidden), len(weight)
    used = memory[: count * size]
    if hidden.device.type == "cpu" and count < FEW_ROWS:
        out, left, right = used.view(size, count), weight, hidden.t()
        bias = None if bias is None else bias[:, None]
    else:
        out, left, right = used.view(count, size), hidden, weight.t()
    if bias is None:
        torch.mm(left, right, out=out)
    else:
        torch.addmm(bias, left, right, out=out)
    return out if left is hidden else out.t()


def _is_linear(head: Any) -> bool:
    """Return whether a head is a linear layer with plain weights that no wrapper changes."""
    torch = import_torch()
    if type(head) is not torch.nn.Linear or "forward" in vars(head):
        return False
    return type(head.weight) is torch.nn.Parameter and type(head.weight.data) is torch.Tensor
