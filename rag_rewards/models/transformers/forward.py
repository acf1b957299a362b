"""The forward pass of a causal language model: hidden states, and log-probabilities from them.

The logits of a whole sequence need much memory. Therefore the backbone computes hidden states, and
the head computes logits only where a response token is predicted (see `vocabulary`).
"""

from __future__ import annotations

import copy
import inspect
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from rag_rewards.evidence.protocols import TokenIds
from rag_rewards.models.transformers.modules import (
    backbone_of,
    import_torch,
    original_forward,
    unwrapped,
)
from rag_rewards.models.transformers.positions import restore_frequencies, shareable_length
from rag_rewards.models.transformers.vocabulary import Vocabulary

Values: TypeAlias = "dict[tuple[int, int], array[float]]"
"""Log-probabilities in nats by (context, response) pair."""


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

    Sequences of more than `shareable` tokens have position encodings that depend on their length.
    With `whole_logits`, log-probabilities come from the whole forward pass instead of the head.
    """

    def __init__(self, model: Any, *, float32_logits: bool, usage: PolicyUsage) -> None:
        self.model = model
        self.causal = unwrapped(model)
        self._modules = list(model.modules())
        self.backbone = backbone_of(self.causal)
        self._cache_argument = cache_argument(self.backbone)
        self.whole_logits = False
        self.shareable = shareable_length(self.causal)
        self.vocabulary = Vocabulary(self.causal, self.backbone, float32=float32_logits)
        self._usage = usage

    @property
    def has_changed(self) -> bool:
        """Whether parts of the model have been replaced since the construction."""
        modules = list(self.model.modules())
        return (
            len(modules) != len(self._modules)
            or any(new is not old for new, old in zip(modules, self._modules, strict=True))
            or self.vocabulary.has_changed
        )

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Use eval mode without gradients. Afterwards, modules in training mode are restored."""
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            with (
                import_torch().no_grad(),
                original_forward(self.causal),
                restore_frequencies(self.causal),
            ):
                yield
        finally:
            for module in training:
                module.training = True

    def run(self, tokens: Sequence[TokenIds], cache: Any) -> Any:
        """Return the hidden states [B, T, H] of right-padded tokens, and extend the cache.

        Under causal attention, right padding needs no mask.
        """
        return self._hidden(
            input_ids=self.token_tensor(tokens), use_cache=True, **{self._cache_argument: cache}
        )

    def run_step(self, tokens: Sequence[int], positions: Sequence[int], tree: Any) -> Any:
        """Return the hidden states [N, H] of tokens at these positions of a tree.

        `tree` is the attention of the step, which the layers pass to the attention function.
        """
        places = import_torch().tensor([positions], device=self.causal.device)
        return self._hidden(
            input_ids=self.token_tensor([tokens]), position_ids=places, use_cache=False, tree=tree
        )[0]

    def token_tensor(self, tokens: Sequence[Sequence[int]]) -> Any:
        """Return a tensor of right-padded token ids on the device of the model."""
        width = max(map(len, tokens))
        padded = [list(row) + [0] * (width - len(row)) for row in tokens]
        return import_torch().tensor(padded, device=self.causal.device)

    def plain_logprobs(self, context: TokenIds, response: TokenIds, size: int) -> array[float]:
        """Return the log-probabilities of one response after one context, without a cache.

        If position encodings depend on the length of the sequence, they are those of the whole
        sequence and of a model that has not seen a longer one.
        """
        if not response:
            return array("f")
        torch, tokens = import_torch(), context + response
        needed = slice(len(context) - 1, len(tokens) - 1)
        if len(tokens) > self.shareable:
            # Dynamic RoPE keeps its largest frequencies until a short sequence resets them.
            self._hidden(input_ids=self.token_tensor([tokens[:1]]), use_cache=False)
        else:
            tokens = tokens[:-1]
        ids = self.token_tensor([tokens])
        if not self.whole_logits:
            hidden = self._hidden(input_ids=ids, use_cache=False)[0, needed]
            return self.logprobs(hidden, range(len(response)), response, size)
        logits = self.causal(input_ids=ids, use_cache=False).logits[0, needed].float()
        self._usage.rows += len(context) + len(response) - 1
        targets = torch.tensor(response, device=ids.device)
        selected = torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0]
        return array("f", selected.tolist())

    def logprobs(
        self, hidden: Any, rows: Sequence[int], targets: Sequence[int], size: int
    ) -> array[float]:
        """Return log p of target k at row `rows[k]` of hidden [R, H], in nats.

        `size` is the number of rows whose logits are in memory at a time.
        """
        if not len(rows):
            return array("f")
        self._usage.rows += len(hidden)
        return self.vocabulary.logprobs(hidden, rows, targets, size)

    def _hidden(self, **inputs: Any) -> Any:
        output = self.backbone(**inputs)
        self.vocabulary.output_type = type(output)
        return output.last_hidden_state


# --- caches ------------------------------------------------------------------------------------


def cache_argument(model: Any) -> str:
    """Return the name of a model's argument for the cache, which depends on its version."""
    parameters = inspect.signature(model.forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"


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
