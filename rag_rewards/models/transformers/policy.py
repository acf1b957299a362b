"""A policy on transformers: the reference of all policies.

Shared tokens of a group run once (see `models.trie`). Before the first use, the policy compares
the values of its methods (see `methods`) with those of the whole forward pass of this model. If
they differ, the policy scores each pair separately, and every answer reports it.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_rewards.errors import BackendError, UsageError, describe, needs_extra, shorten
from rag_rewards.evidence.protocols import (
    Capabilities,
    GenerateAnswer,
    GenerateRequest,
    ScoreAnswer,
    ScoreRequest,
    TokenIds,
    Tokenizer,
)
from rag_rewards.models.local_models import (
    check_tokenizer,
    explained,
    free_memory,
    is_out_of_memory,
    load_model,
    load_tokenizer,
    model_folder,
    require_complete,
    torch_device,
    torch_dtype,
)
from rag_rewards.models.selfcheck import checked_arrays, selfcheck
from rag_rewards.models.transformers.forward import ModelForward, PolicyUsage, Values
from rag_rewards.models.transformers.generation import (
    generate_batch,
    padding_fault,
    similar_requests,
)
from rag_rewards.models.transformers.methods import choose_methods
from rag_rewards.models.transformers.modules import import_torch
from rag_rewards.models.transformers.positions import longest_sequence
from rag_rewards.models.transformers.scoring import GroupScoring
from rag_rewards.models.transformers.tree import DEVICES, NotInTreeError
from rag_rewards.models.transformers.weights import check_not_sharded, hash_weights
from rag_rewards.models.trie import forward_tokens, naive_tokens

_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
"""Maximum difference of cached and plain values of one precision, in nats per token."""
_LEAST_BUDGET = 256
_SPARE_IDS = 64
"""Ids of a tokenizer that a model may lack: families share special tokens of other sizes."""


@dataclass
class TransformersPolicy:
    """A policy on a transformers model: an existing model, or one that `load` loads.

    model           a causal language model
    tokenizer       its tokenizer
    name            name of the model, for the fingerprint
    weight_version  version of the weights, for the answers and the fingerprint
    token_budget    maximum number of tokens in the cache of a batch of responses, including
                    contexts; memory grows with it. It is halved when memory is exhausted
    prefill         number of tokens that run at a time
    rows            number of positions whose logits are in memory at a time
    float32_logits  compute the last projection in float32, whatever the precision of the model
    plain           score each pair separately, without a cache
    is_live         whether the model generates the rollouts, such as the model in training

    The model can be one that is being trained: during a call it is in eval mode and without
    gradients. Sharded weights (ZeRO-3, FSDP) are not supported.

    Raises UsageError for sharded weights and for a tokenizer that does not fit the model, and
    MissingExtraError if torch or transformers is not installed.
    """

    model: Any
    tokenizer: Tokenizer
    name: str = ""
    weight_version: str | int | None = None
    token_budget: int = 16_384
    prefill: int = 2_048
    rows: int = 1_024
    float32_logits: bool = False
    plain: bool = False
    is_live: bool = False
    usage: PolicyUsage = field(default_factory=PolicyUsage)

    def __post_init__(self) -> None:
        import_torch()
        self._lock = threading.Lock()
        self._methods: tuple[str, ...] = ()
        self._note = ""
        self._padded: float | None = None
        self._warnings: set[str] = set()
        self._forward = self._new_forward()
        causal = self._forward.causal
        self._embeddings = causal.get_input_embeddings().weight.shape[0]
        check_tokenizer(self.tokenizer, causal, _SPARE_IDS)

    def _new_forward(self) -> ModelForward:
        check_not_sharded(self.model)
        forward = ModelForward(self.model, float32_logits=self.float32_logits, usage=self.usage)
        if self.float32_logits and hasattr(forward.causal.get_output_embeddings(), "base_layer"):
            raise UsageError("float32_logits cannot be used with an adapter on the output layer")
        return forward

    @classmethod
    def load(
        cls,
        path: str,
        *,
        dtype: str = "auto",
        device: str | None = None,
        adapter: str | None = None,
        **options: Any,
    ) -> TransformersPolicy:
        """Load a model and its tokenizer.

        path     folder of the model, or its name on the Hugging Face hub
        dtype    "float32", "bfloat16", "float16", or "auto" for the saved precision
        device   "cpu", "cuda", "cuda:1", …; default: a GPU if there is one
        adapter  folder of a LoRA adapter (peft)
        options  further arguments of the class

        Raises UsageError for an incomplete folder.
        """
        import_torch()
        from transformers import AutoModelForCausalLM

        placement = torch_dtype(dtype), torch_device(device)
        folder = model_folder(path)
        require_complete(folder)
        model = load_model(AutoModelForCausalLM, folder, *placement)
        tokenizer = load_tokenizer(folder)
        if adapter is not None:
            model = _with_adapter(model, adapter)
        return cls(model, tokenizer, name=Path(path).name, **options)

    # --- identity ------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Name, precision and a hash of the weights at this time, including adapters.

        Each access reads all weights, because a training step changes them in ways that torch does
        not count.
        """
        version = "" if self.weight_version is None else f" version={self.weight_version}"
        weights = hash_weights(self.model)
        return f"transformers {self.name} {self.precision} {weights}{version}"

    @property
    def precision(self) -> str:
        """Precision of the model, and that of its logits if it is another one."""
        own = str(self._forward.causal.dtype).removeprefix("torch.")
        return f"{own}+float32 logits" if self.float32_logits and own != "float32" else own

    @property
    def capabilities(self) -> Capabilities:
        """The precision of the model, and whether it generates the rollouts."""
        return Capabilities(precision=self.precision, is_live=self.is_live)

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens of context and response, None if the config has none."""
        config = self._forward.causal.config.get_text_config()
        return getattr(config, "max_position_embeddings", None)

    # --- the protocol --------------------------------------------------------------------------

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Return the log-probabilities of each request, or its BackendError.

        Small requests run together. A cancellation waits for those that run at the moment.
        """
        answers: list[ScoreAnswer | Exception] = []
        for pack in self._packs(requests):
            answers += await asyncio.to_thread(self.score_sync, pack)
        return answers

    def score_sync(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Return the same as `score`, without an event loop."""
        with self._lock:
            self._notice_changes()
            with self._forward.inference():
                if not self._methods:
                    self._choose_methods()
                return [answer for pack in self._packs(requests) for answer in self._answers(pack)]

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        """Return one continuation for each request, or its BackendError.

        Greedy requests run in batches, also with prompts of different lengths.
        """
        return await asyncio.to_thread(self.generate_sync, requests)

    def generate_sync(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        """Return the same as `generate`, without an event loop."""
        answers: list[GenerateAnswer | Exception | None] = [None] * len(requests)
        with self._lock:
            self._notice_changes()
            with self._forward.inference():
                lengths = {len(each.prompt) for each in requests if each.temperature == 0}
                padded = self._padded_length() if len(lengths) > 1 else 0
                for batch in similar_requests(requests, self.token_budget, padded):
                    results = self._generate([requests[i] for i in batch])
                    for i, answer in zip(batch, results, strict=True):
                        answers[i] = answer
        return [answer for answer in answers if answer is not None]

    async def selfcheck(self) -> None:
        """Run the self-check of all policies. Raises BackendError."""
        await selfcheck(self)

    async def close(self) -> None:
        """Do nothing: the policy holds no open resource."""

    def refresh(
        self, weights: Mapping[str, Any] | Iterable[tuple[str, Any]], version: str | int
    ) -> None:
        """Load new weights, all or some, between two calls.

        weights  tensors by name
        version  version of the weights, for the answers and the fingerprint

        Raises UsageError for a name that the model does not have, without any change.
        """
        new = dict(weights)
        with self._lock:
            own = self.model.state_dict()
            if unknown := sorted(set(new) - set(own)):
                raise UsageError(f"weights that the model does not have: {', '.join(unknown[:3])}")
            self.model.load_state_dict(new, strict=False)
            self.weight_version = version

    # --- scoring -------------------------------------------------------------------------------

    def _notice_changes(self) -> None:
        """Check the weights again, and the methods after parts of the model were replaced."""
        check_not_sharded(self.model)
        if self._forward.has_changed:
            self._forward, self._methods, self._padded = self._new_forward(), (), None

    @property
    def _tolerance(self) -> float:
        return _TOLERANCE.get(self.precision, _TOLERANCE["bfloat16"])

    def _choose_methods(self) -> None:
        self._methods, self._note = choose_methods(self._forward, self._tolerance, self.plain)
        self.plain = self._methods == ("plain",)
        device = self._forward.causal.device.type
        if self._note:
            self._warn(f"{self._methods[0]} ({self._note})")
        elif self._methods[0] == "shared" and device not in DEVICES:
            self._warn(
                f"shared on {device}: each response has a copy of the keys and values of its "
                "context. token_budget limits the memory of these copies"
            )

    def _warn(self, message: str) -> None:
        """Warn once about this model."""
        if message not in self._warnings:
            self._warnings.add(message)
            warnings.warn(f"{self.name or 'the model'}: {message}", stacklevel=3)

    def _packs(self, requests: Sequence[ScoreRequest]) -> Iterator[list[ScoreRequest]]:
        """Yield consecutive requests that run together: about as many tokens as run at a time."""
        pack: list[ScoreRequest] = []
        tokens = 0
        for request in requests:
            size = _most_tokens(request)
            if pack and tokens + size > self.prefill:
                yield pack
                pack, tokens = [], 0
            pack.append(request)
            tokens += size
        if pack:
            yield pack

    def _answers(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Answer requests together; after a failure, one by one."""
        faults = [_fault(request, self._embeddings) for request in requests]
        if len(requests) == 1 and faults[0]:
            return [BackendError(faults[0])]
        sizes = self.token_budget, self.prefill, self.rows
        try:
            if not any(faults):
                values, method, path = self._score(requests)
                source = f"transformers {self.name} {self.precision}"
                return [
                    self._answer(*each, method, path, source)
                    for each in zip(requests, values, strict=True)
                ]
        except Exception as error:
            # A group that is too large must neither slow the others nor keep its memory.
            self.token_budget, self.prefill, self.rows = sizes
            if len(requests) == 1:
                return [_as_answer(error)]
        return [answer for request in requests for answer in self._answers([request])]

    def _answer(
        self, request: ScoreRequest, values: Values, method: str, path: str, source: str
    ) -> ScoreAnswer:
        lengths = {pair: len(request.responses[pair[1]]) for pair in request.wanted()}
        logprobs = checked_arrays(values, lengths, source)
        needed = naive_tokens(request)
        computed = needed if method == "plain" else forward_tokens(request)
        self.usage.computed += computed
        self.usage.reused += needed - computed
        return ScoreAnswer(logprobs, path, computed, needed - computed, self.weight_version)

    def _score(self, requests: Sequence[ScoreRequest]) -> tuple[list[Values], str, str]:
        """Return the values of requests by the first method that can compute them.

        Also returns its name, and the path for the answers: the name with notes about failures.
        """
        notes = [self._note] if self._note else []
        for method in self._sharing_methods(requests):
            try:
                return self._within_memory(method, requests), method, _path(method, notes)
            except NotInTreeError:
                continue
            except RuntimeError as error:
                # The sequences of the self-check are short, so that a kernel can fail later.
                notes.append(f"{method} failed: {shorten(describe(error), 200)}")
                self._warn(notes[-1])
        return self._within_memory("plain", requests), "plain", _path("plain", notes)

    def _sharing_methods(self, requests: Sequence[ScoreRequest]) -> tuple[str, ...]:
        """Return the methods that share tokens and are exact for sequences of this length."""
        sharing = self._methods[:-1]
        most = self._forward.shareable
        if longest_sequence(requests) <= most:
            return sharing
        self._warn(
            f"plain for sequences of more than {most:,.0f} tokens, because its position encodings "
            "depend on the length of the sequence. Contexts of other lengths, such as without a "
            "document, have other encodings of the same tokens: shorten the contexts, or use a "
            "model with fixed encodings"
        )
        return ()

    def _within_memory(self, method: str, requests: Sequence[ScoreRequest]) -> list[Values]:
        """Score requests, and halve the token budget while memory is exhausted."""
        while True:
            try:
                scoring = GroupScoring(self._forward, self.token_budget, self.prefill, self.rows)
                return scoring.score(method, requests)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                traceback.clear_frames(error.__traceback__)  # they keep the caches alive
            if self.token_budget <= _LEAST_BUDGET:
                raise BackendError(f"out of memory with a token budget of {self.token_budget}")
            self.token_budget //= 2
            self.prefill = max(min(self.prefill, self.token_budget) // 2, 64)
            self.rows = max(self.rows // 2, 16)
            free_memory()
            self._warn(f"out of memory: continuing with a token budget of {self.token_budget}")

    # --- generation ----------------------------------------------------------------------------

    def _padded_length(self) -> float:
        """Return up to how many tokens a sequence can have padding before it."""
        if self._padded is None:
            fault = padding_fault(self._forward, self._tolerance)
            if fault:
                self._warn(f"generates only prompts of the same length together: padded {fault}")
            self._padded = 0 if fault else self._forward.shareable
        return self._padded

    def _generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateAnswer | Exception]:
        """Generate a batch; after a failure, its halves, down to the single failing request."""
        try:
            for request in requests:
                if fault := _id_fault(request.prompt, self._embeddings):
                    raise BackendError(fault)
            return [
                *generate_batch(
                    self._forward, self.tokenizer, requests, self.weight_version, self.usage
                )
            ]
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            if len(requests) == 1:
                return [_as_answer(error)]
        half = len(requests) // 2
        return [*self._generate(requests[:half]), *self._generate(requests[half:])]


def _with_adapter(model: Any, adapter: str) -> Any:
    with needs_extra("transformers", "peft"):
        from peft import PeftModel
    with explained(adapter):
        adapted = PeftModel.from_pretrained(model, adapter)
    if adapted.active_peft_config.is_prompt_learning:
        raise UsageError(f"{adapter} is a prompt adapter; only weight adapters are supported")
    return adapted


def _most_tokens(request: ScoreRequest) -> int:
    """Return an upper bound of the tokens that a request runs, without its trie."""
    responses = sum(map(len, request.responses))
    return sum(map(len, request.contexts)) + len(request.contexts) * responses


def _path(method: str, notes: Sequence[str]) -> str:
    """Return the path of an answer: the method, with notes about what differs from the usual."""
    return f"{method} ({'; '.join(notes)})" if notes else method


def _fault(request: ScoreRequest, embeddings: int) -> str:
    """Return why a request cannot be scored, "" if it can."""
    for context in {context for context, _ in request.wanted()}:
        if not request.contexts[context]:
            return f"context {context} is empty: the first token of a response needs a token before"
    faults = (_id_fault(ids, embeddings) for ids in (*request.contexts, *request.responses))
    return next((fault for fault in faults if fault), "")


def _id_fault(ids: TokenIds, embeddings: int) -> str:
    if not ids or (min(ids) >= 0 and max(ids) < embeddings):
        return ""
    invalid = next(i for i in ids if not 0 <= i < embeddings)
    return f"token id {invalid} is not in the vocabulary of the model (0 to {embeddings - 1:,})"


def _as_answer(error: Exception) -> Exception:
    """Return an error as an answer, without the frames that keep tensors alive."""
    traceback.clear_frames(error.__traceback__)
    if isinstance(error, BackendError):
        return error.with_traceback(None)
    return BackendError(shorten(describe(error), 300))
