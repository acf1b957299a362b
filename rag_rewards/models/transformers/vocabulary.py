"""Log-probabilities from hidden states, with the logits of a part of the vocabulary at a time.

All logits of a group need much memory, and writing them takes longer than computing them.
Therefore the logits are computed from hidden states that exist already, for some rows and, if the
head is a linear layer, for a slice of its weights. The denominator is

    log Σᵥ exp zᵥ = log Σₖ exp(log Σᵥ exp zᵥ)    over the slices k and their tokens v.

If the first logits of the model's own forward pass are exactly the product of hidden states and
weights, the product is used from then on. Otherwise, the forward pass computes the logits of each
slice. Its soft caps and its scaling apply to each logit by itself, so that they are right for a
slice as well.

The logits of all slices use the same memory, because the first write to new memory is slow.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rag_rewards.models.transformers.modules import import_torch, replaced_forward

SLICE = 1_024
"""Number of tokens of the vocabulary whose logits are in memory at a time on a CPU."""

BLOCK = 1 << 22
"""Number of logits whose log-probabilities are in memory at a time."""

LEAST = -256.0
"""Log-probability of the first token of a slice from which log Σ exp is exact to 5e-5 nats."""

FEW_ROWS = 256
"""On a CPU, the product of a slice and fewer rows is faster with one row of logits per token."""


class Targets(NamedTuple):
    """Tokens whose log-probabilities are wanted, in ascending order of their ids.

    rows     row of each token [K]
    ids      id of each token [K]
    id_list  the ids as a list, for decisions that do not wait for a GPU
    """

    rows: Any
    ids: Any
    id_list: list[int]

    def of_slice(self, start: int, stop: int) -> slice:
        """Return the places of the tokens from `start` to `stop`."""
        return slice(bisect_left(self.id_list, start), bisect_left(self.id_list, stop))


class Vocabulary:
    """The head of a causal language model.

    causal    the model
    backbone  the part of the model that computes the hidden states
    float32   compute the logits in float32, whatever the precision of the model

    `slice` is the number of tokens of the vocabulary at a time; None for the whole forward pass of
    the head, which other devices than a CPU use, and which adapters and quantized weights need.
    `output_type` is the type of the backbone's output. `_is_product` tells whether the logits are
    only the product of hidden states and weights; None before the first comparison.
    """

    def __init__(self, causal: Any, backbone: Any, *, float32: bool) -> None:
        self.output_type: Any = None
        self._causal = causal
        self._backbone = backbone
        self._float32 = float32
        self._head = causal.get_output_embeddings()
        self._hooks = _hooks(self._head)
        self._is_product: bool | None = None
        is_sliced = causal.device.type == "cpu" and _is_linear(self._head)
        self.slice = SLICE if is_sliced else None

    @property
    def has_changed(self) -> bool:
        """Whether the head has been replaced, such as by an adapter, or has other hooks."""
        head = self._causal.get_output_embeddings()
        return head is not self._head or _hooks(head) != self._hooks

    def use_whole_head(self) -> None:
        """Compute the logits of the whole vocabulary at a time."""
        self.slice = None
        self._is_product = None  # the first slice can be a product, and another one not

    def logprobs(
        self, hidden: Any, rows: Sequence[int], targets: Sequence[int], size: int
    ) -> array[float]:
        """Return log p of target k at row `rows[k]` of hidden [R, H]: logit − log Σ exp, in nats.

        `size` is the number of rows whose logits are in memory at a time.
        """
        torch = import_torch()
        # Parts of equal size, since a product with few rows is slow.
        size = -(-len(hidden) // -(-len(hidden) // size)) if len(hidden) else size
        order = sorted(range(len(rows)), key=lambda k: (rows[k] // size, targets[k]))
        of_parts = [rows[k] // size for k in order]
        # Once for all parts, because a copy to a GPU waits for the part before.
        at = torch.tensor([rows[k] % size for k in order], device=hidden.device)
        ids = torch.tensor([targets[k] for k in order], device=hidden.device)
        parts = []
        for part in sorted(set(of_parts)):
            its = slice(bisect_left(of_parts, part), bisect_right(of_parts, part))
            wanted = Targets(at[its], ids[its], [targets[k] for k in order[its]])
            parts.append(self._of_rows(hidden[part * size : (part + 1) * size], wanted))
        values = array("f", [0.0]) * len(rows)
        for k, value in zip(order, torch.cat(parts).tolist() if parts else (), strict=True):
            values[k] = value
        return values

    def _of_rows(self, hidden: Any, targets: Targets) -> Any:
        """Return the log-probabilities [K] of targets of hidden states [R, H]."""
        logits, totals = self._sums(hidden, targets, _log_sum_exp)
        if not import_torch().isfinite(totals).all():
            logits, totals = self._sums(hidden, targets, _log_sum_exp_of_any)
        return logits - totals[targets.rows]

    def _sums(
        self, hidden: Any, targets: Targets, log_sum_exp: Callable[[Any], Any]
    ) -> tuple[Any, Any]:
        """Return the logits [K] of targets, and log Σ exp of the logits of all rows [R]."""
        torch = import_torch()
        shape, kind = (len(targets.rows),), torch.float32
        # An id without a logit has the probability 0: a head can be smaller than the embeddings.
        selected = torch.full(shape, -torch.inf, dtype=kind, device=hidden.device)
        totals = []
        for start, logits in self._slices(hidden):
            its = targets.of_slice(start, start + logits.shape[1])
            selected[its] = logits[targets.rows[its], targets.ids[its] - start].float()
            totals.append(log_sum_exp(logits))
        return selected, torch.logsumexp(torch.stack(totals), 0)

    def _slices(self, hidden: Any) -> Iterator[tuple[int, Any]]:
        """Yield the logits [R, S] of each slice, with its first token.

        The logits of a slice are valid until the next one.
        """
        count = self._head.weight.shape[0]
        size = min(self.slice or count, count)
        memory = None
        if self.slice is not None or self._float32:
            kind = import_torch().float32 if self._float32 else self._head.weight.dtype
            memory = hidden.new_empty(len(hidden) * size, dtype=kind)
        for start in range(0, count, size):
            yield start, self._logits(hidden, start, start + size, memory)

    def _logits(self, hidden: Any, start: int, stop: int, memory: Any) -> Any:
        """Return the logits [R, S] of tokens from `start` to `stop`, if possible in `memory`."""
        if memory is None:
            return self._logits_of_model(hidden)
        if self._is_product:
            return self._product(hidden, start, stop, memory)

        def forward(hidden: Any) -> Any:
            rows = self._product(hidden.flatten(0, -2), start, stop, memory)
            return rows.unflatten(0, hidden.shape[:-1])

        with replaced_forward(self._head, forward):
            logits = self._logits_of_model(hidden)
        if self._is_product is None:
            product = self._product(hidden, start, stop, memory.clone())
            self._is_product = import_torch().equal(product, logits)
        return logits

    def _product(self, hidden: Any, start: int, stop: int, memory: Any) -> Any:
        """Return the product of hidden [R, H] and the weights of tokens, in `memory`."""
        weight, bias = self._head.weight[start:stop], getattr(self._head, "bias", None)
        return _product(
            hidden.to(memory.dtype),
            weight.to(memory.dtype),
            None if bias is None else bias[start:stop].to(memory.dtype),
            memory,
        )

    def _logits_of_model(self, hidden: Any) -> Any:
        """Return the logits of hidden [R, H] by the model's own forward pass."""
        torch = import_torch()

        def forward(*args: Any, **options: Any) -> Any:
            return self.output_type(last_hidden_state=hidden[None])

        with replaced_forward(self._backbone, forward):
            dummy = torch.zeros((1, 1), dtype=torch.long, device=hidden.device)
            return self._causal(input_ids=dummy, use_cache=False).logits[0]


def _log_sum_exp(logits: Any) -> Any:
    """Return log Σ exp of logits [R, S] in float32; NaN where the first logit is far below others.

    The function log_softmax reads the logits once from memory, others several times.
    """
    torch = import_torch()
    if logits.stride(-1) == 1:
        blocks = logits.split(max(BLOCK // logits.shape[1], 1))
        firsts = [torch.log_softmax(block, -1, dtype=torch.float32)[:, 0] for block in blocks]
    else:
        firsts = [torch.log_softmax(logits.t(), 0, dtype=torch.float32)[0]]
    first = torch.cat(firsts)
    return (logits[:, 0].float() - first).where(first > LEAST, torch.nan)


def _log_sum_exp_of_any(logits: Any) -> Any:
    """Return log Σ exp of any logits [R, S], also of −∞, in float32."""
    return import_torch().logsumexp(logits.float(), -1)


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


def _hooks(head: Any) -> tuple[Any, ...]:
    """Return the functions that change the input or the output of a head."""
    if head is None:
        return ()
    return (*head._forward_pre_hooks.values(), *head._forward_hooks.values())


def _is_linear(head: Any) -> bool:
    """Return whether a head is a linear layer with plain weights that no wrapper changes."""
    torch = import_torch()
    if type(head) is not torch.nn.Linear or "forward" in vars(head):
        return False
    return type(head.weight) is torch.nn.Parameter and type(head.weight.data) is torch.Tensor
