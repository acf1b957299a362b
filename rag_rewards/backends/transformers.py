"""A policy on transformers: the reference, exact on CPU and GPU, for every family it can load.

Tokens that a group shares are run once (see trie.py): the cache is copied where contexts branch
and once more for the responses. Logits are made only where a response token is predicted, some
rows at a time, by the model's own head. Where a family does not give the values of plain scoring
that way, plain scoring is used and every answer says so.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import threading
import traceback
import warnings
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_rewards.backends.addresses import is_url, without_credentials
from rag_rewards.backends.local_models import free_memory, is_out_of_memory
from rag_rewards.backends.selfcheck import checked_arrays, selfcheck
from rag_rewards.backends.trie import Node, Serving, build, forward_tokens, naive_tokens, servings
from rag_rewards.errors import BackendError, MissingExtraError, UsageError
from rag_rewards.evidence.protocols import (
    Capabilities,
    GenerateAnswer,
    GenerateRequest,
    ScoreAnswer,
    ScoreRequest,
    TokenIds,
    Tokenizer,
)

DTYPES = ("auto", "float32", "bfloat16", "float16")
_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
"""Nats per token by which cached and plain values of one precision may differ."""
_LEAST_BUDGET = 256
_SPARE_IDS = 64
"""Ids of a tokenizer that a model may lack: some families have special tokens for other sizes."""


@dataclass
class PolicyUsage:
    """Tokens that the model was run on, and those that it was spared; logit rows; seconds."""

    computed: int = 0
    reused: int = 0
    rows: int = 0
    generated: int = 0


@dataclass
class TransformersPolicy:
    """Scores and generates with a transformers model, given as it is or loaded by `load`.

    token_budget   tokens in the cache of one batch of responses, contexts included; memory
                   grows with it, and it is halved when memory runs out
    prefill        tokens of a context run at a time
    rows           positions whose logits are in memory at a time
    float32_logits the last projection in float32, whatever the model's precision
    plain          score every pair by itself, with nothing shared

    A model that is being trained may be given: it is put in eval mode and without gradients for
    the time of a call. Sharded weights (ZeRO-3, FSDP) are refused.
    """

    model: Any
    tokenizer: Tokenizer
    name: str = ""
    weight_version: str | int | None = None
    token_budget: int = 16_384
    prefill: int = 2_048
    rows: int = 256
    float32_logits: bool = False
    plain: bool = False
    usage: PolicyUsage = field(default_factory=PolicyUsage)

    def __post_init__(self) -> None:
        _torch()
        _refuse_shards(self.model)
        self._lock = threading.Lock()
        self._checked = False
        self._note = ""
        self._whole_head = False
        self._output: type[Any] | None = None
        self._fingerprint = (-1, "")
        self._head: tuple[Any, Any] | None = None
        self._causal = _unwrapped(self.model)
        self._backbone = getattr(self._causal, self._causal.base_model_prefix)
        vocabulary = self._causal.get_input_embeddings().weight.shape[0]
        beyond = sorted(i for i in _vocabulary(self.tokenizer) if i >= vocabulary)
        if len(beyond) > _SPARE_IDS:
            raise UsageError(
                f"the tokenizer does not fit the model: it has token id {beyond[-1]}, the model "
                f"{vocabulary:,} embeddings"
            )
        if self.float32_logits and hasattr(self._causal.get_output_embeddings(), "base_layer"):
            raise UsageError("float32_logits does not go with an adapter on the output layer")
        self._embeddings = vocabulary

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
        """Load a model and its tokenizer; `adapter` is a folder of a LoRA adapter (peft).

        UsageError names what a folder lacks.
        """
        torch = _torch()
        if dtype not in DTYPES:
            raise UsageError(f"dtype is one of {', '.join(DTYPES)}, not {dtype!r}")
        from transformers import AutoModelForCausalLM, AutoTokenizer

        where = device or ("cuda" if torch.cuda.is_available() else "cpu")
        with _explained(path), _no_progress_bar():
            model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
            tokenizer: Any = AutoTokenizer.from_pretrained(path)
        model = model.to(where)
        if adapter is not None:
            model = _with_adapter(model, adapter)
        return cls(model, tokenizer, name=Path(path).name, **options)

    # --- what it is ----------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Name, precision and a hash of the weights, adapters included."""
        changes = sum(parameter._version for parameter in self.model.parameters())
        if changes != self._fingerprint[0]:  # a training step, too, makes other weights
            self._fingerprint = (changes, _hash_of(self.model))
        version = "" if self.weight_version is None else f" version={self.weight_version}"
        return f"transformers {self.name} {self.precision} {self._fingerprint[1]}{version}"

    @property
    def precision(self) -> str:
        """The model's own, and that of its logits where it is another."""
        own = str(self._causal.dtype).removeprefix("torch.")
        return f"{own}+float32 logits" if self.float32_logits and own != "float32" else own

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            exact=True, reuses_prefixes=not self.plain, generates=True, precision=self.precision
        )

    @property
    def max_length(self) -> int | None:
        config = self._causal.config.get_text_config()
        return getattr(config, "max_position_embeddings", None)

    # --- the protocol --------------------------------------------------------------------------

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Log-probabilities of groups, one after the other, each in a thread of its own: who
        interrupts waits for one group, not for all."""
        answers: list[ScoreAnswer | Exception] = []
        for request in requests:
            answers += await asyncio.to_thread(self.score_sync, [request])
        return answers

    def score_sync(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """The same for callers without an event loop."""
        with self._lock, self._quiet_model():
            if not self._checked:
                self._choose_path()
                self._checked = True
            return [self._answer(request) for request in requests]

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        """Continuations. Greedy ones of prompts of one length are made together."""
        return await asyncio.to_thread(self.generate_sync, requests)

    def generate_sync(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        """The same for callers without an event loop."""
        answers: list[GenerateAnswer | Exception | None] = [None] * len(requests)
        with self._lock, self._quiet_model():
            for batch in _alike(requests, self.token_budget):
                made = self._generated_apart([requests[i] for i in batch])
                for at, answer in zip(batch, made, strict=True):
                    answers[at] = answer
        return [answer for answer in answers if answer is not None]

    async def selfcheck(self) -> None:
        """Compare with plain scoring, then as every backend is checked. BackendError."""
        await selfcheck(self)

    async def close(self) -> None:
        """Nothing is held open."""

    def refresh(
        self, weights: Mapping[str, Any] | Iterable[tuple[str, Any]], version: str | int
    ) -> None:
        """Take new weights, whole or in part, between two calls; answers carry the version.

        UsageError for a name that the model does not have, before anything is changed.
        """
        new = dict(weights)
        with self._lock:
            known = self.model.state_dict()
            if unknown := sorted(set(new) - set(known)):
                raise UsageError(f"weights that the model does not have: {', '.join(unknown[:3])}")
            self.model.load_state_dict(new, strict=False)
            self.weight_version = version

    # --- scoring -------------------------------------------------------------------------------

    @contextmanager
    def _quiet_model(self) -> Iterator[None]:
        """Eval mode and no gradients; a training model is given back as it was."""
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            with _torch().no_grad(), _own_forward(self._causal):
                yield
        finally:
            self._head = None  # of these weights
            for module in training:
                module.training = True

    def _choose_path(self) -> None:
        """Compare shortcuts on a small group with this very model's whole forward pass."""
        request = _probe(self._causal)
        with self._head_of_all_rows():
            expected = self._score_plain(request)
        if why := self._differs(self._score_plain, request, expected):
            self._whole_head = self.plain = True
            self._note = f"plain, whole logits (the head alone failed its self-check: {why})"
        elif not self.plain and (why := self._differs(self._score_shared, request, expected)):
            self.plain = True
            self._note = f"plain (sharing a cache failed its self-check: {why})"
        if self._note:
            warnings.warn(f"{self.name or 'the model'}: {self._note}", stacklevel=2)

    def _differs(self, score: Any, request: ScoreRequest, expected: Mapping[Any, Any]) -> str:
        """How a way of scoring departs from the expected values; "" where it does not."""
        try:
            worst = _difference(score(request), expected)
        except Exception as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if worst <= _TOLERANCE.get(self.precision, _TOLERANCE["bfloat16"]):
            return ""
        return f"values differ by up to {worst:.3g} nats"

    @contextmanager
    def _head_of_all_rows(self) -> Iterator[None]:
        """Logits by the model's whole forward: what the shortcut to its head is compared with."""
        before, self._whole_head = self._whole_head, True
        try:
            yield
        finally:
            self._whole_head = before

    def _answer(self, request: ScoreRequest) -> ScoreAnswer | Exception:
        if fault := _unusable(request, self._embeddings):
            return BackendError(fault)
        score = self._score_plain if self.plain else self._score_shared
        sizes = self.token_budget, self.prefill, self.rows
        try:
            values = self._within_memory(score, request)
            lengths = {pair: len(request.responses[pair[1]]) for pair in request.wanted()}
            logprobs = checked_arrays(values, lengths, self.fingerprint)
        except Exception as error:
            # What one group needs too much must not make all others slow, nor keep its memory.
            self.token_budget, self.prefill, self.rows = sizes
            return _as_answer(error)
        needed = naive_tokens(request)
        computed = needed if self.plain else forward_tokens(request)
        self.usage.computed += computed
        self.usage.reused += needed - computed
        path = self._note or ("plain" if self.plain else "shared")
        return ScoreAnswer(logprobs, path, computed, needed - computed, self.weight_version)

    def _within_memory(self, score: Any, request: ScoreRequest) -> dict[tuple[int, int], Any]:
        """With half the budget, and again, as long as memory runs out."""
        while True:
            try:
                result: dict[tuple[int, int], Any] = score(request)
                return result
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                traceback.clear_frames(error.__traceback__)  # they hold the caches
            if self.token_budget <= _LEAST_BUDGET:
                raise BackendError(f"out of memory with a token budget of {self.token_budget}")
            self.token_budget //= 2
            self.prefill = max(min(self.prefill, self.token_budget) // 2, 64)
            self.rows = max(self.rows // 2, 16)
            free_memory()
            warnings.warn(
                f"out of memory: going on with a token budget of {self.token_budget}", stacklevel=2
            )

    def _score_plain(self, request: ScoreRequest) -> dict[tuple[int, int], array[float]]:
        """Every distinct pair by itself."""
        values: dict[tuple[int, int], array[float]] = {}
        for context, serving in servings(request).items():
            for response, pairs in zip(serving.responses, serving.of, strict=True):
                found = self._plain_pair(request.contexts[context], response)
                values.update(dict.fromkeys(pairs, found))
        return values

    def _plain_pair(self, context: TokenIds, response: TokenIds) -> array[float]:
        if not response:
            return array("f")
        torch, ids = _torch(), self._ids([context + response[:-1]])
        targets = torch.tensor(response, device=ids.device)
        if not self._whole_head:
            hidden = self._hidden(input_ids=ids, use_cache=False)
            return self._picked(hidden[0, -len(response) :], range(len(response)), targets)
        logits = self._causal(input_ids=ids, use_cache=False).logits[0, -len(response) :].float()
        self.usage.rows += len(context) + len(response) - 1
        chosen = torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0]
        return array("f", chosen.tolist())

    def _score_shared(self, request: ScoreRequest) -> dict[tuple[int, int], array[float]]:
        """Along the trie of the contexts, every token once."""
        from transformers import DynamicCache

        serving = servings(request)
        root = build(request.contexts, list(serving))
        cache = DynamicCache(config=self._causal.config.get_text_config())
        return self._visit(root, cache, serving)

    def _visit(
        self, node: Node, cache: Any, serving: Mapping[int, Serving]
    ) -> dict[tuple[int, int], array[float]]:
        """Run a node into the cache, serve the context that ends there, go on below."""
        values: dict[tuple[int, int], array[float]] = {}
        behind = self._prefill(node.tokens, cache)
        for at, context in enumerate(node.ends, start=1):
            keep = bool(node.children) or at < len(node.ends)
            values.update(self._serve(serving[context], cache, behind, keep))
        for child in node.children[:-1]:
            values.update(self._visit(child, _copied(cache, 1), serving))
        for child in node.children[-1:]:
            values.update(self._visit(child, cache, serving))
        return values

    def _prefill(self, tokens: TokenIds, cache: Any) -> Any:
        """Run tokens into the cache; the hidden state behind the last of them, [1, H]."""
        hidden = None
        for start in range(0, len(tokens), self.prefill):
            hidden = self._run([tokens[start : start + self.prefill]], cache)
        return None if hidden is None else hidden[0, -1:]

    def _serve(
        self, serving: Serving, cache: Any, behind: Any, keep: bool
    ) -> dict[tuple[int, int], array[float]]:
        """Log-probabilities of every response behind one context. `behind` is [1, H]."""
        torch = _torch()
        responses, shared = serving.responses, serving.shared
        if shared:
            cache = _copied(cache, 1) if keep else cache
            keep = False
            common = self._run([responses[0][:shared]], cache)[0]
            behind = torch.cat([behind, common])
        found: dict[int, array[float]] = {}
        order = sorted(range(len(responses)), key=lambda i: -len(responses[i]))
        first = {i: responses[i][: shared + 1] for i in order}
        found.update(self._shared_rows(behind, first))
        longer = [i for i in order if len(responses[i]) > shared + 1]
        batches = list(_batches(longer, responses, cache.get_seq_length(), self.token_budget))
        for at, batch in enumerate(batches):
            rest = [responses[i][shared:] for i in batch]
            last = at == len(batches) - 1 and not keep
            branch = _repeated(cache, len(batch), last)
            hidden = self._run([tokens[:-1] for tokens in rest], branch)
            del branch
            for i, values in zip(batch, self._own_rows(hidden, rest), strict=True):
                found[i] = found[i] + values
        return {pair: found[i] for i, pairs in enumerate(serving.of) for pair in pairs}

    def _shared_rows(self, hidden: Any, targets: Mapping[int, TokenIds]) -> dict[int, array[float]]:
        """Targets of several responses at the same positions: row t predicts token t of each."""
        torch = _torch()
        flat = [token for tokens in targets.values() for token in tokens]
        rows = [t for tokens in targets.values() for t in range(len(tokens))]
        values = self._picked(
            hidden, rows, torch.tensor(flat, dtype=torch.long, device=hidden.device)
        )
        out, at = {}, 0
        for i, tokens in targets.items():
            out[i] = values[at : at + len(tokens)]
            at += len(tokens)
        return out

    def _own_rows(self, hidden: Any, responses: Sequence[TokenIds]) -> list[array[float]]:
        """hidden [B, T, H], right-padded: row t of response b predicts its token t + 1."""
        torch = _torch()
        lengths = [len(tokens) - 1 for tokens in responses]
        rows = torch.cat([hidden[b, :length] for b, length in enumerate(lengths)])
        flat = [token for tokens in responses for token in tokens[1:]]
        values = self._picked(
            rows, range(len(flat)), torch.tensor(flat, dtype=torch.long, device=rows.device)
        )
        out, at = [], 0
        for length in lengths:
            out.append(values[at : at + length])
            at += length
        return out

    def _run(self, tokens: Sequence[TokenIds], cache: Any) -> Any:
        """Hidden states [B, T, H] of right-padded tokens; under causal attention padding needs
        no mask, and nothing continues behind it."""
        return self._hidden(input_ids=self._ids(tokens), past_key_values=cache, use_cache=True)

    def _hidden(self, **inputs: Any) -> Any:
        output = self._backbone(**inputs)
        self._output = type(output)
        return output.last_hidden_state

    def _ids(self, tokens: Sequence[TokenIds]) -> Any:
        width = max(map(len, tokens))
        padded = [list(row) + [0] * (width - len(row)) for row in tokens]
        return _torch().tensor(padded, device=self._causal.device)

    # --- logits --------------------------------------------------------------------------------

    def _picked(self, hidden: Any, rows: Iterable[int], targets: Any) -> array[float]:
        """log p of target k at row `rows[k]` of hidden [R, H]: logit − logsumexp, in float32."""
        torch = _torch()
        at = torch.tensor(list(rows), dtype=torch.long, device=hidden.device)
        if not len(at):
            return array("f")
        out = torch.empty(len(at), dtype=torch.float32, device=hidden.device)
        for start in range(0, len(hidden), self.rows):
            logits = self._logits(hidden[start : start + self.rows])
            here = (at >= start) & (at < start + self.rows)
            own = at[here] - start
            chosen = logits[own, targets[here]]
            out[here] = chosen - _logsumexp(logits)[own]
        self.usage.rows += len(hidden)
        return array("f", out.tolist())

    def _logits(self, hidden: Any) -> Any:
        """Logits [R, V] in float32 by the model's own head, soft caps and scaling included."""
        head = self._float32_head() if self.float32_logits else _as_is()
        with head, _standing_in(self._backbone, self._output, hidden[None]):
            dummy = _torch().zeros((1, 1), dtype=_torch().long, device=hidden.device)
            return self._causal(input_ids=dummy, use_cache=False).logits[0].float()

    @contextmanager
    def _float32_head(self) -> Iterator[None]:
        """The last projection with a float32 copy of its weights, made once a call."""
        torch, head = _torch(), self._causal.get_output_embeddings()
        if self._head is None:
            bias = getattr(head, "bias", None)
            self._head = (head.weight.float(), None if bias is None else bias.float())
        weight, bias = self._head
        with _replaced(
            head, lambda hidden: torch.nn.functional.linear(hidden.float(), weight, bias)
        ):
            yield

    # --- generating ----------------------------------------------------------------------------

    def _generated_apart(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        """Together; where that fails, in halves, down to the request that fails by itself."""
        try:
            return self._generate(requests)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            if len(requests) == 1:
                return [_as_answer(error)]
        half = len(requests) // 2
        return [*self._generated_apart(requests[:half]), *self._generated_apart(requests[half:])]

    def _generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateAnswer | Exception]:
        """Requests that are alike in all but their prompts, which are of one length."""
        for request in requests:
            if fault := _unusable_ids(request.prompt, self._embeddings):
                raise BackendError(fault)
        torch, first = _torch(), requests[0]
        ids = self._ids([request.prompt for request in requests])
        stops: dict[str, Any] = {}
        if first.stop:
            stops = {"stopping_criteria": [self._stopping(first.stop, ids.shape[1])]}
        ends = self._ends()
        with (
            torch.random.fork_rng(enabled=first.seed is not None),
            _generation_config(self._causal, first, ends),
        ):
            if first.seed is not None:
                torch.manual_seed(first.seed)
            made = self._causal.generate(ids, attention_mask=torch.ones_like(ids), **stops)
        self.usage.generated += made[:, ids.shape[1] :].numel()
        return [self._generated(row, ends, first) for row in made[:, ids.shape[1] :].tolist()]

    def _stopping(self, stops: Sequence[str], start: int) -> Any:
        """Whether each text has come to one of these strings.

        transformers' own `stop_strings` takes the vocabulary apart by its spelling, which fails
        for tokenizers of whole words.
        """
        torch = _torch()
        most = max(len(stop.encode()) for stop in stops)  # a token has a byte at least

        def ended(ids: Any, scores: Any, **_: Any) -> Any:
            tails = ids[:, max(start, ids.shape[1] - most) :].tolist()
            texts = (self.tokenizer.decode(tail) for tail in tails)
            found = [any(stop in text for stop in stops) for text in texts]
            return torch.tensor(found, device=ids.device)

        return ended

    def _ends(self) -> set[int]:
        """Tokens that end a text, by the model and by the tokenizer."""
        said = self._causal.generation_config.eos_token_id
        ends = set(said) if isinstance(said, (list, tuple)) else {said}
        ends.add(getattr(self.tokenizer, "eos_token_id", None))
        return {end for end in ends if end is not None}

    def _generated(
        self, tokens: list[int], ends: set[int], request: GenerateRequest
    ) -> GenerateAnswer:
        until = next((i for i, token in enumerate(tokens) if token in ends), None)
        kept = tokens if until is None else tokens[:until]
        text = self.tokenizer.decode(kept)
        at = min((text.index(stop) for stop in request.stop if stop in text), default=None)
        finished = until is not None or at is not None
        return GenerateAnswer(
            text if at is None else text[:at],
            tuple(kept),
            "stop" if finished else "length",
            self.weight_version,
        )


def _logsumexp(logits: Any) -> Any:
    """log Σ exp over the last axis, in the memory of the logits, which are lost."""
    top = logits.amax(-1, keepdim=True)
    return logits.sub_(top).exp_().sum(-1).log_().add_(top[:, 0])


# --- caches ------------------------------------------------------------------------------------


def _copied(cache: Any, rows: int) -> Any:
    """A cache of its own with the one row of this repeated; every layer knows how to select rows.

    Tensors are not copied with the objects that hold them: selecting rows makes new ones.
    """
    torch = _torch()
    tensors = [tensor for layer in cache.layers for tensor in _tensors(vars(layer))]
    twin = copy.deepcopy(cache, {id(tensor): tensor for tensor in tensors})
    twin.reorder_cache(torch.zeros(rows, dtype=torch.long))
    return twin


def _repeated(cache: Any, rows: int, last: bool) -> Any:
    """The cache for `rows` responses; the last to use it may have it."""
    if not last:
        return _copied(cache, rows)
    if rows > 1:
        cache.reorder_cache(_torch().zeros(rows, dtype=_torch().long))
    return cache


def _tensors(held: Any) -> Iterator[Any]:
    if isinstance(held, _torch().Tensor):
        yield held
    elif isinstance(held, Mapping):
        for value in held.values():
            yield from _tensors(value)


def _batches(
    positions: Sequence[int], responses: Sequence[TokenIds], before: int, budget: int
) -> Iterator[list[int]]:
    """Responses, longest first, in as few batches of at most `budget` tokens as there can be,
    contexts included, and those of about one size: memory is that of the largest."""
    left = list(positions)
    while left:
        width = before + len(responses[left[0]])
        most = max(budget // width, 1)
        size = -(-len(left) // -(-len(left) // most))
        yield left[:size]
        left = left[size:]


# --- the model's head --------------------------------------------------------------------------


@contextmanager
def _replaced(module: Any, forward: Any) -> Iterator[None]:
    """Another forward for a module, for a time."""
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
def _standing_in(backbone: Any, output: Any, hidden: Any) -> Iterator[None]:
    """The backbone gives these hidden states: what follows is the model's own way to logits."""

    def forward(*args: Any, **options: Any) -> Any:
        return output(last_hidden_state=hidden)

    with _replaced(backbone, forward):
        yield


@contextmanager
def _own_forward(causal: Any) -> Iterator[None]:
    """Without the autocast that accelerate puts around a model: one precision for all parts."""
    own = getattr(causal, "_original_forward", None)
    with _as_is() if own is None else _replaced(causal, own):
        yield


@contextmanager
def _as_is() -> Iterator[None]:
    yield


@contextmanager
def _generation_config(causal: Any, request: GenerateRequest, ends: set[int]) -> Iterator[None]:
    """What is asked, and nothing of the model's own defaults: no penalty, no nucleus."""
    from transformers import GenerationConfig

    sampled = {"do_sample": True, "temperature": request.temperature, "top_k": 0, "top_p": 1.0}
    before = causal.generation_config
    causal.generation_config = GenerationConfig(
        max_new_tokens=request.max_tokens,
        eos_token_id=sorted(ends) or None,
        pad_token_id=min(ends, default=0),
        bos_token_id=before.bos_token_id,
        **(sampled if request.temperature > 0 else {"do_sample": False}),
    )
    try:
        yield
    finally:
        causal.generation_config = before


# --- loading and checking ----------------------------------------------------------------------


def _torch() -> Any:
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "transformers", extra="transformers") from None
    return torch


_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """What a folder lacks, in one line."""
    if is_url(path):
        raise UsageError(
            f"{without_credentials(path)} is the address of a server, not a folder with a model"
        )
    folder = Path(path)
    if folder.exists() and not (folder / "config.json").exists():
        raise UsageError(f"{path} is no model folder: it has no config.json")
    if folder.is_dir() and not any((folder / name).exists() for name in _TOKENIZERS):
        raise UsageError(f"{path} has no tokenizer: none of {', '.join(_TOKENIZERS)}")
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        said = " ".join(str(error).split())
        raise UsageError(f"cannot load a model from {path}: {said[:300]}") from None


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _with_adapter(model: Any, adapter: str) -> Any:
    try:
        from peft import PeftModel
    except ImportError:
        raise MissingExtraError("peft", extra="transformers") from None
    with _explained_adapter(adapter):
        adapted = PeftModel.from_pretrained(model, adapter)
    if adapted.active_peft_config.is_prompt_learning:
        raise UsageError(f"{adapter} is an adapter of prompts; only those of weights are scored")
    return adapted


@contextmanager
def _explained_adapter(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise UsageError(f"cannot load an adapter from {path}: {said[:300]}") from None


def _unwrapped(model: Any) -> Any:
    """The causal language model inside data-parallel and adapter wrappers."""
    while hasattr(model, "module"):
        model = model.module
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _refuse_shards(model: Any) -> None:
    """Sharded weights need every rank to run equally often; a scoring server does not."""
    for module in model.modules():
        kind = type(module).__name__
        if "FullyShardedDataParallel" in kind or kind.startswith("FSDP"):
            break
        if any(
            hasattr(parameter, "ds_id") or type(parameter.data).__name__ == "DTensor"
            for parameter in module.parameters(recurse=False)
        ):
            break
    else:
        return
    raise UsageError(
        "the weights are sharded (ZeRO-3, FSDP): every rank would have to score equally often. "
        "Score over HTTP with a server that has the weights (vLLM, SGLang)"
    )


def _vocabulary(tokenizer: Any) -> Iterable[int]:
    known = getattr(tokenizer, "get_vocab", None)
    return known().values() if known else ()


def _hash_of(model: Any) -> str:
    """Names, shapes and some numbers of every weight: cheap, and another after any training."""
    torch = _torch()
    digest = hashlib.blake2b(digest_size=6)
    for name, weight in sorted(model.state_dict().items()):
        flat = weight.detach().reshape(-1)
        step = max(flat.numel() // 512, 1)
        some = flat[::step][:1024].to(torch.float32).cpu().contiguous()
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        digest.update(bytes(some.numpy()))
    return digest.hexdigest()


def _unusable(request: ScoreRequest, vocabulary: int) -> str:
    for context in {context for context, _ in request.wanted()}:
        if not request.contexts[context]:
            return "a context without a token: the first response token has nothing before it"
    faults = (_unusable_ids(ids, vocabulary) for ids in (*request.contexts, *request.responses))
    return next((fault for fault in faults if fault), "")


def _unusable_ids(ids: TokenIds, vocabulary: int) -> str:
    if not ids or (min(ids) >= 0 and max(ids) < vocabulary):
        return ""
    odd = next(i for i in ids if not 0 <= i < vocabulary)
    return f"token id {odd} is none of the model's {vocabulary:,}"


def _as_answer(error: Exception) -> Exception:
    """The error in the place of an answer, without the frames that hold a model's tensors."""
    traceback.clear_frames(error.__traceback__)
    if isinstance(error, BackendError):
        return error.with_traceback(None)
    return BackendError(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _probe(causal: Any) -> ScoreRequest:
    """A small group of pseudo-random tokens: two contexts that branch, responses that do."""
    top = causal.config.get_text_config().vocab_size - 1
    numbers = [(i * 7919 + 104729) % max(top, 1) for i in range(64)]
    start, document, end = tuple(numbers[:7]), tuple(numbers[7:16]), tuple(numbers[16:24])
    responses = (tuple(numbers[30:36]), (*numbers[30:32], *numbers[40:45]), tuple(numbers[50:51]))
    return ScoreRequest((start + document + end, start + end), responses)


def _difference(one: Mapping[Any, array[float]], other: Mapping[Any, array[float]]) -> float:
    gaps = [abs(a - b) for pair in other for a, b in zip(one[pair], other[pair], strict=True)]
    return max((gap if gap == gap else float("inf") for gap in gaps), default=0.0)


def _alike(requests: Sequence[GenerateRequest], budget: int) -> Iterator[list[int]]:
    """Positions of requests that can be generated together: sampled ones are by themselves."""
    kinds: dict[Any, list[int]] = {}
    for i, request in enumerate(requests):
        kind: tuple[Any, ...] = (len(request.prompt), request.max_tokens, request.stop)
        if request.temperature > 0:
            kind = (*kind, i)
        kinds.setdefault(kind, []).append(i)
    for (length, new, *_), members in kinds.items():
        size = max(budget // (length + new), 1)
        for start in range(0, len(members), size):
            yield members[start : start + size]
