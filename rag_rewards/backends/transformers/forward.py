"""The forward pass of a causal language model: hidden states, and log-probabilities from them.

The logits of a whole sequence need much memory. Therefore the backbone computes hidden states, and
the model's own head computes logits only where a response token is predicted, some rows at a time.
"""

from __future__ import annotations

import copy
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from rag_rewards.errors import needs_extra
from rag_rewards.evidence.protocols import TokenIds


@dataclass
class PolicyUsage:
    """The work of a policy.

    computed   number of tokens that the model was run on
    reused     number of further tokens that separate scoring of each pair would have run
    rows       number of rows of logits
    generated  number of generated tokens, including padding
    """

    computed: int = 0
    reused: int = 0
    rows: int = 0
    generated: int = 0


class ModelForward:
    """The parts of a causal language model that scoring uses.

    model           the model, with its adapters and wrappers
    float32_logits  compute the last projection in float32
    usage           counter of the rows of logits

    With `whole_logits`, log-probabilities come from the whole forward pass instead of the head.
    """

    def __init__(self, model: Any, *, float32_logits: bool, usage: PolicyUsage) -> None:
        self.model = model
        self.causal = unwrapped(model)
        self.backbone = getattr(self.causal, self.causal.base_model_prefix)
        self.whole_logits = False
        self._float32_logits = float32_logits
        self._usage = usage
        self._output_type: type[Any] | None = None
        self._float32_weights: tuple[Any, Any] | None = None

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Use eval mode without gradients. Afterwards, modules in training mode are restored."""
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            with import_torch().no_grad(), _original_forward(self.causal):
                yield
        finally:
            self._float32_weights = None  # the weights can change before the next call
            for module in training:
                module.training = True

    def run(self, tokens: Sequence[TokenIds], cache: Any) -> Any:
        """Return the hidden states [B, T, H] of right-padded tokens, and extend the cache.

        Under causal attention, right padding needs no mask.
        """
        return self._hidden(
            input_ids=self.token_tensor(tokens), past_key_values=cache, use_cache=True
        )

    def token_tensor(self, tokens: Sequence[TokenIds]) -> Any:
        """Return a tensor of right-padded token ids on the device of the model."""
        width = max(map(len, tokens))
        padded = [list(row) + [0] * (width - len(row)) for row in tokens]
        return import_torch().tensor(padded, device=self.causal.device)

    def plain_logprobs(self, context: TokenIds, response: TokenIds, chunk: int) -> array[float]:
        """Return the log-probabilities of one response after one context, without a cache."""
        if not response:
            return array("f")
        torch, ids = import_torch(), self.token_tensor([context + response[:-1]])
        targets = torch.tensor(response, device=ids.device)
        if not self.whole_logits:
            hidden = self._hidden(input_ids=ids, use_cache=False)
            return self.logprobs(hidden[0, -len(response) :], range(len(response)), targets, chunk)
        logits = self.causal(input_ids=ids, use_cache=False).logits[0, -len(response) :].float()
        self._usage.rows += len(context) + len(response) - 1
        selected = torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0]
        return array("f", selected.tolist())

    def logprobs(self, hidden: Any, rows: Iterable[int], targets: Any, chunk: int) -> array[float]:
        """Return log p of target k at row `rows[k]` of hidden [R, H]: logit − logsumexp, in nats.

        `chunk` is the number of rows whose logits are in memory at a time.
        """
        torch = import_torch()
        positions = torch.tensor(list(rows), dtype=torch.long, device=hidden.device)
        if not len(positions):
            return array("f")
        out = torch.empty(len(positions), dtype=torch.float32, device=hidden.device)
        for start in range(0, len(hidden), chunk):
            logits = self._logits(hidden[start : start + chunk])
            inside = (positions >= start) & (positions < start + chunk)
            local = positions[inside] - start
            selected = logits[local, targets[inside]]
            out[inside] = selected - _logsumexp(logits)[local]
        self._usage.rows += len(hidden)
        return array("f", out.tolist())

    def _hidden(self, **inputs: Any) -> Any:
        output = self.backbone(**inputs)
        self._output_type = type(output)
        return output.last_hidden_state

    def _logits(self, hidden: Any) -> Any:
        """Return logits [R, V] in float32 by the model's head, with its soft caps and scaling."""
        torch = import_torch()
        head = self._float32_head() if self._float32_logits else nullcontext()
        with head, _fixed_output(self.backbone, self._output_type, hidden[None]):
            dummy = torch.zeros((1, 1), dtype=torch.long, device=hidden.device)
            return self.causal(input_ids=dummy, use_cache=False).logits[0].float()

    @contextmanager
    def _float32_head(self) -> Iterator[None]:
        """Use a float32 copy of the weights of the last projection, made once per call."""
        torch, head = import_torch(), self.causal.get_output_embeddings()
        if self._float32_weights is None:
            bias = getattr(head, "bias", None)
            self._float32_weights = (head.weight.float(), None if bias is None else bias.float())
        weight, bias = self._float32_weights
        with _replaced_forward(
            head, lambda hidden: torch.nn.functional.linear(hidden.float(), weight, bias)
        ):
            yield


def unwrapped(model: Any) -> Any:
    """Return the causal language model inside data-parallel and adapter wrappers."""
    while hasattr(model, "module"):
        model = model.module
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def import_torch() -> Any:
    """Return torch. Raises MissingExtraError if torch or transformers is not installed."""
    with needs_extra("transformers"):
        import torch
        import transformers  # noqa: F401
    return torch


def _logsumexp(logits: Any) -> Any:
    """Return log Σ exp over the last axis. Overwrites the logits to save memory."""
    top = logits.amax(-1, keepdim=True)
    return logits.sub_(top).exp_().sum(-1).log_().add_(top[:, 0])


# --- caches ------------------------------------------------------------------------------------


def copy_cache(cache: Any, rows: int) -> Any:
    """Return a copy of a cache with one row, repeated `rows` times.

    `reorder_cache` is implemented by all layers and creates new tensors. Therefore only the objects
    that contain the tensors are copied before.
    """
    torch = import_torch()
    tensors = [tensor for layer in cache.layers for tensor in _tensors(vars(layer))]
    twin = copy.deepcopy(cache, {id(tensor): tensor for tensor in tensors})
    twin.reorder_cache(torch.zeros(rows, dtype=torch.long))
    return twin


def repeat_cache(cache: Any, rows: int, is_last: bool) -> Any:
    """Return the cache for `rows` responses. The last use does not need a copy."""
    if not is_last:
        return copy_cache(cache, rows)
    if rows > 1:
        cache.reorder_cache(import_torch().zeros(rows, dtype=import_torch().long))
    return cache


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, import_torch().Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)


# --- replaced forward methods ------------------------------------------------------------------


@contextmanager
def _replaced_forward(module: Any, forward: Any) -> Iterator[None]:
    """Replace the forward method of a module."""
    own = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


@contextmanager
def _fixed_output(backbone: Any, output_type: Any, hidden: Any) -> Iterator[None]:
    """Make the backbone return these hidden states, so that the model computes their logits."""

    def forward(*args: Any, **options: Any) -> Any:
        return output_type(last_hidden_state=hidden)

    with _replaced_forward(backbone, forward):
        yield


@contextmanager
def _original_forward(causal: Any) -> Iterator[None]:
    """Remove the autocast of accelerate: all parts of the model compute in one precision."""
    original = getattr(causal, "_original_forward", None)
    with nullcontext() if original is None else _replaced_forward(causal, original):
        yield
