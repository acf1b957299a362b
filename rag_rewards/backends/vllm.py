"""A policy behind vLLM: a server of its own (`VllmServer`), or an engine in this process.

Log-probabilities of a given text are vLLM's prompt log-probabilities. With them it does not read
its prefix cache, on purpose: the rows of the part that was cached are memory that nobody wrote.
So the plain way is exact and runs every token of every sequence. `cached=True` reads the cache all
the same, and believes only a sequence whose cached part ends before the first row that is needed;
others are sent again the plain way. It is off until it has proved on this very engine that it
gives the plain values.

A server needs `--enable-scale-out --enable-prompt-tokens-details` for `cached=True`: only
`/inference/v1/generate` takes an engine's own sampling parameters. `--max-num-batched-tokens`
should be small in either way: the logits of a whole chunk are held at once, outside the memory
that vLLM plans for (8,192 tokens and 152,000 words are 7.5 GiB).
"""

from __future__ import annotations

import asyncio
import copy
import importlib
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rag_rewards.backends.http import HttpError, Limits, Place, Servers, endpoints, run_concurrently
from rag_rewards.backends.selfcheck import agree, selfcheck
from rag_rewards.backends.sequences import (
    SequenceResult,
    TokenSequence,
    batches,
    check_request,
    count_tokens,
    distinct_sequences,
    score_answer,
    waves,
)
from rag_rewards.backends.tokenizer import tokenizer_of
from rag_rewards.errors import BackendError, MissingExtraError
from rag_rewards.evidence.protocols import (
    Capabilities,
    GenerateAnswer,
    GenerateRequest,
    ScoreAnswer,
    ScoreRequest,
    TokenIds,
    Tokenizer,
)

PLAIN = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
# Without detokenize=False the token ids of unwritten rows are looked up, and the engine dies.
_CACHED = {**PLAIN, "detokenize": False, "skip_reading_prefix_cache": False}
# A server's defaults may come from the model's generation_config.json: none of them is meant here.
SAMPLING = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


# --- what a server sends -------------------------------------------------------------------------


class _Row(msgspec.Struct):
    logprob: float


_Rows = list[dict[int, _Row] | None] | None


class _Choice(msgspec.Struct):
    index: int = 0
    text: str = ""
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    prompt_logprobs: _Rows = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens_details: _Details | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class _Generated(msgspec.Struct):
    """The answer of /inference/v1/generate, for one prompt."""

    prompt_logprobs: _Rows = None
    usage: _Usage | None = None


class _Card(msgspec.Struct):
    id: str
    root: str | None = None
    max_model_len: int | None = None


class _Cards(msgspec.Struct):
    data: list[_Card]


# --- a server ------------------------------------------------------------------------------------


class VllmServer:
    """vLLM's OpenAI-compatible server, or several of the same model.

    url             http:// or https:// addresses; a group of requests stays on one of them
    model           the name it serves under; None takes the only one, or the first
    tokenizer       a tokenizer or its folder; None loads it from the model's folder if it is here
    precision       what the server computes in ("float32", "bfloat16", …): it does not say, and
                    the fingerprint and the tolerances of the self-check depend on it
    weight_version  of the weights it serves; goes into the answers and the fingerprint
    cached          read the prefix cache (see the module); refused unless it passes its check
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        model: str | None = None,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        precision: str = "unknown",
        weight_version: str | int | None = None,
        cached: bool = False,
        api_key: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self.model = model
        self.precision = precision
        self.weight_version = weight_version
        self.cached = cached
        self._servers = Servers("vllm", endpoints(url), limits or Limits(), headers)
        self._tokenizer = tokenizer
        self._card: _Card | None = None
        self._trusted = False

    @property
    def fingerprint(self) -> str:
        version = "" if self.weight_version is None else f" version={self.weight_version}"
        return f"vllm {self.model or self._known().id} {self.precision}{version}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(reuses_prefixes=self.cached, precision=self.precision)

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None or isinstance(self._tokenizer, str | os.PathLike):
            folder = self._known().root if self._tokenizer is None else None
            self._tokenizer = tokenizer_of(self._tokenizer, folder)
        return self._tokenizer

    @property
    def max_length(self) -> int | None:
        """One less than the model's: a request for log-probabilities also generates a token."""
        longest = self._known().max_model_len
        return None if longest is None else longest - 1

    def refresh(self, weight_version: str | int | None = None) -> None:
        """The servers have other weights now. Their prefix caches must have been reset."""
        self.weight_version, self._card = weight_version, None

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        if self.cached and not self._trusted:
            await self._check_cached()
        return await self._servers.each(requests, count_tokens, self._score)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        return await self._servers.each(
            requests, lambda request: len(request.prompt) + request.max_tokens, self._generate
        )

    async def selfcheck(self) -> None:
        """Every server by itself, whether they agree, and the cached way if it is asked for."""
        await self._connect()
        first, *others = self._servers.apart()
        for servers in (first, *others):
            with servers.named():
                await selfcheck(self._on(servers))
        for servers in others:
            with servers.named():
                await agree(self._on(servers), self._on(first))
        if self.cached:
            await self._check_cached()

    async def close(self) -> None:
        """Nothing is kept open between calls."""

    # --- scoring -------------------------------------------------------------------------------

    async def _score(self, request: ScoreRequest, place: Place) -> ScoreAnswer:
        model, version = await self._learn(place), self.weight_version
        who = f"vllm {model.id} at {place.endpoint.url}"
        longest = None if model.max_model_len is None else model.max_model_len - 1
        check_request(request, longest, who)
        scored: list[tuple[TokenSequence, SequenceResult]] = []
        if self.cached:
            for wave in waves(distinct_sequences(request)):
                found = await run_concurrently(
                    self._one_cached(ask, model.id, place) for ask in wave
                )
                scored += zip(wave, found, strict=True)
        else:
            parts = batches(distinct_sequences(request), self._servers.limits.batch)
            for part, found in zip(
                parts,
                await run_concurrently(self._batch(part, model.id, place) for part in parts),
                strict=True,
            ):
                scored += zip(part, found, strict=True)
        if self.weight_version != version:
            raise BackendError(f"{who}: the weights changed while a group was scored")
        path = "vllm cached" if self.cached else "vllm"
        return score_answer(request, scored, source=who, path=path, weight_version=version)

    async def _batch(
        self, group: Sequence[TokenSequence], model: str, place: Place
    ) -> list[SequenceResult]:
        """Sequences in one request: all tokens run, no cache read."""
        body = {"model": model, "prompt": [ask.tokens for ask in group], **PLAIN}
        choices = (await place.post("/v1/completions", body, _Completion)).choices
        who = f"vllm {model} at {place.endpoint.url}"
        if sorted(choice.index for choice in choices) != list(range(len(group))):
            raise BackendError(f"{who}: expected {len(group)} choices, found {len(choices)}")
        rows = {choice.index: choice.prompt_logprobs for choice in choices}
        return [
            SequenceResult(response_logprobs(rows[i], ask.response, who), len(ask.tokens))
            for i, ask in enumerate(group)
        ]

    async def _one_cached(self, ask: TokenSequence, model: str, place: Place) -> SequenceResult:
        """One sequence, the cache read; once more the plain way if too much of it was cached."""
        body = {"model": model, "token_ids": ask.tokens, "sampling_params": _CACHED}
        try:
            found = await place.post("/inference/v1/generate", body, _Generated, final=(500,))
        except HttpError as error:
            if error.status == 404:
                raise HttpError(
                    f"{error}; cached=True needs a server started with --enable-scale-out", 404
                ) from None
            # A row that nobody wrote may hold a NaN, which is no JSON: 400 (0.32), no answer.
            if error.status not in (400, 500):
                raise
            return (await self._batch([ask], model, place))[0]
        details = found.usage.prompt_tokens_details if found.usage else None
        cached = details.cached_tokens if details else None
        who = f"vllm {model} at {place.endpoint.url}"
        if cached is None:
            raise BackendError(
                f"{who}: the server does not say how many tokens were cached: start it with "
                "--enable-prompt-tokens-details, or leave cached=True out"
            )
        run = len(ask.tokens) - cached
        if not covers_response(cached, ask):
            again = (await self._batch([ask], model, place))[0]
            return SequenceResult(again.logprobs, again.computed + run)
        return SequenceResult(response_logprobs(found.prompt_logprobs, ask.response, who), run)

    async def _check_cached(self) -> None:
        """Refuse the cached way where it gives other values than the plain one."""
        await self._connect()
        for servers in self._servers.apart():
            with servers.named():
                trial = self._on(servers, cached=True)
                await selfcheck(trial)
                await agree(trial, self._on(servers))
        self._trusted = True

    def _on(self, servers: Servers, *, cached: bool = False) -> VllmServer:
        """This policy on some of its servers, with the cache read or not, unchecked."""
        policy = copy.copy(self)
        policy._servers, policy.cached, policy._trusted = servers, cached, True
        return policy

    # --- generation ------------------------------------------------------------------------------

    async def _generate(self, request: GenerateRequest, place: Place) -> GenerateAnswer:
        model, version = await self._learn(place), self.weight_version
        body = {
            "model": model.id,
            "prompt": [request.prompt],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stop": request.stop,
            "seed": request.seed,
            "return_token_ids": True,
            **SAMPLING,
        }
        choices = (await place.post("/v1/completions", body, _Completion)).choices
        who = f"vllm {model.id} at {place.endpoint.url}"
        if len(choices) != 1:
            raise BackendError(f"{who}: expected 1 choice, found {len(choices)}")
        return generate_answer(choices[0], version, who)

    # --- what the servers say of themselves ------------------------------------------------------

    async def _learn(self, place: Place) -> _Card:
        if self._card is None:
            self._card = self._pick(await place.get(["/v1/models"], _Cards))
        return self._card

    async def _connect(self) -> None:
        """Learn it now, so that no property has to ask a server while an event loop waits."""
        async with self._servers.session() as session, session.place(1) as place:
            await self._learn(place)

    def _known(self) -> _Card:
        if self._card is None:
            self._card = self._pick(self._servers.ask_once(["/v1/models"], _Cards))
        return self._card

    def _pick(self, cards: _Cards) -> _Card:
        for card in cards.data:
            if self.model in (None, card.id):
                return card
        names = ", ".join(repr(card.id) for card in cards.data) or "none"
        raise BackendError(f"vllm: no model {self.model!r} is served; there are: {names}")


# --- an engine in this process -------------------------------------------------------------------


class VllmEngine:
    """A `vllm.LLM` in this process: one that exists already, or a model to load.

    `options` go to `vllm.LLM` where `llm` is a name or a folder. Other arguments as in
    `VllmServer`. Calls from several threads or event loops take turns.
    """

    def __init__(
        self,
        llm: Any,
        *,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        weight_version: str | int | None = None,
        cached: bool = False,
        groups: int = 64,
        **options: Any,
    ) -> None:
        vllm = _vllm()
        if isinstance(llm, str | os.PathLike):
            llm = vllm.LLM(model=os.fspath(llm), **options)
        self.llm = llm
        self.weight_version = weight_version
        self.cached = cached
        self.groups = groups
        self._parameters = vllm.SamplingParams
        self._config = llm.llm_engine.model_config
        self._tokenizer = tokenizer
        self._turn = threading.Lock()
        self._trusted = False

    @property
    def fingerprint(self) -> str:
        version = "" if self.weight_version is None else f" version={self.weight_version}"
        return f"vllm {self._config.model} {self.capabilities.precision}{version}"

    @property
    def capabilities(self) -> Capabilities:
        precision = str(self._config.dtype).removeprefix("torch.")
        return Capabilities(reuses_prefixes=self.cached, precision=precision)

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            self._tokenizer = self.llm.get_tokenizer()
        if isinstance(self._tokenizer, str | os.PathLike):
            self._tokenizer = tokenizer_of(self._tokenizer, None)
        known: Tokenizer = self._tokenizer
        return known

    @property
    def max_length(self) -> int | None:
        """One less than the model's: a request for log-probabilities also generates a token."""
        return int(self._config.max_model_len) - 1

    def refresh(self, weight_version: str | int | None = None) -> None:
        """The engine has other weights now. Its prefix cache must have been reset."""
        self.weight_version = weight_version

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        if self.cached and not self._trusted:
            await self._check_cached()
        answers: list[ScoreAnswer | Exception] = []
        # Part by part: what one wave leaves in the cache must still be there for the next.
        for start in range(0, len(requests), self.groups):
            part = requests[start : start + self.groups]
            answers += await asyncio.to_thread(self._score, part)
        return answers

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        return await asyncio.to_thread(self._generate, requests) if requests else []

    async def selfcheck(self) -> None:
        """The plain way, and the cached one if it is asked for."""
        await selfcheck(self._plain())
        if self.cached:
            await self._check_cached()

    async def close(self) -> None:
        """The engine is its owner's, and ends with it."""

    def _score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """A part of the groups; each by itself where the engine refuses them together."""
        try:
            return self._score_together(requests)
        except BackendError as error:
            if len(requests) == 1:
                return [error]
            return [self._score([request])[0] for request in requests]

    def _score_together(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        version = self.weight_version
        faults: dict[int, Exception] = {}
        scored: dict[int, list[tuple[TokenSequence, SequenceResult]]] = {}
        orders: dict[int, list[list[TokenSequence]]] = {}
        for i, request in enumerate(requests):
            try:
                check_request(request, self.max_length, self.fingerprint)
            except BackendError as error:
                faults[i] = error
                continue
            group = distinct_sequences(request)
            scored[i], orders[i] = [], list(waves(group)) if self.cached else [group]
        for step in range(3 if self.cached else 1):
            wave = [
                (i, ask) for i, order in orders.items() if step < len(order) for ask in order[step]
            ]
            for (i, ask), found in zip(wave, self._run([ask for _, ask in wave]), strict=True):
                if isinstance(found, BackendError):
                    faults.setdefault(i, found)
                else:
                    scored[i].append((ask, found))
        return [
            faults[i] if i in faults else self._answer(request, scored[i], version)
            for i, request in enumerate(requests)
        ]

    def _answer(
        self,
        request: ScoreRequest,
        scored: Sequence[tuple[TokenSequence, SequenceResult]],
        version: str | int | None,
    ) -> ScoreAnswer | Exception:
        if self.weight_version != version:
            return BackendError(f"{self.fingerprint}: the weights changed while a group was scored")
        path = "vllm cached" if self.cached else "vllm"
        try:
            return score_answer(
                request, scored, source=self.fingerprint, path=path, weight_version=version
            )
        except BackendError as error:
            return error

    def _run(self, group: Sequence[TokenSequence]) -> list[SequenceResult | BackendError]:
        """Every sequence; those of which too much was cached once more, the plain way."""
        outputs = self._engine(group, _CACHED if self.cached else {**PLAIN, "detokenize": False})
        again = [
            i
            for i, output in enumerate(outputs)
            if self.cached and not covers_response(output.num_cached_tokens, group[i])
        ]
        plain = self._engine([group[i] for i in again], {**PLAIN, "detokenize": False})
        extra = dict(zip(again, plain, strict=True))
        return [self._scored(ask, outputs[i], extra.get(i)) for i, ask in enumerate(group)]

    def _scored(self, ask: TokenSequence, output: Any, again: Any) -> SequenceResult | BackendError:
        run = len(ask.tokens) - ((output.num_cached_tokens or 0) if self.cached else 0)
        if again is not None:
            run += len(ask.tokens)
        rows = (again or output).prompt_logprobs
        try:
            return SequenceResult(response_logprobs(rows, ask.response, self.fingerprint), run)
        except BackendError as error:
            return error

    def _engine(self, group: Sequence[TokenSequence], parameters: dict[str, Any]) -> list[Any]:
        """One call of the engine, its outputs in order."""
        if not group:
            return []
        prompts = [{"prompt_token_ids": list(ask.tokens)} for ask in group]
        return self._call(prompts, self._parameters(**parameters))

    def _call(self, prompts: list[dict[str, list[int]]], parameters: Any) -> list[Any]:
        with self._turn:
            try:
                outputs = self.llm.generate(prompts, parameters, use_tqdm=False)
            except Exception as error:  # whatever an engine raises
                raise BackendError(
                    f"{self.fingerprint}: {type(error).__name__}: {error}"
                ) from error
        if len(outputs) != len(prompts):
            raise BackendError(
                f"{self.fingerprint}: expected {len(prompts)} outputs, found {len(outputs)}"
            )
        return list(outputs)

    def _generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateAnswer | Exception]:
        """All of them; each by itself where the engine refuses them together."""
        try:
            return self._generate_together(requests)
        except BackendError as error:
            if len(requests) == 1:
                return [error]
            return [self._generate([request])[0] for request in requests]

    def _generate_together(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        version = self.weight_version
        prompts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
        parameters = [
            self._parameters(
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                stop=list(request.stop),
                seed=request.seed,
                **SAMPLING,
            )
            for request in requests
        ]
        answers: list[GenerateAnswer | Exception] = []
        for output in self._call(prompts, parameters):
            try:
                answers.append(generate_answer(output.outputs[0], version, self.fingerprint))
            except BackendError as error:
                answers.append(error)
        return answers

    async def _check_cached(self) -> None:
        """Refuse the cached way where it gives other values than the plain one."""
        trial = self._plain()
        trial.cached = trial._trusted = True
        await selfcheck(trial)
        await agree(trial, self._plain())
        self._trusted = True

    def _plain(self) -> VllmEngine:
        """This policy without the engine's cache."""
        policy = copy.copy(self)
        policy.cached = False
        return policy


def _vllm() -> Any:
    try:
        return importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise
        raise MissingExtraError("vllm", extra="vllm") from None


# --- what both read ------------------------------------------------------------------------------


def covers_response(cached: int | None, ask: TokenSequence) -> bool:
    """Whether the rows of the response were computed.

    A token's row is that of the token before it: the last token of the context must have been run.
    """
    return cached is not None and cached < len(ask.context)


def response_logprobs(
    rows: Sequence[Mapping[int, Any] | None] | None, response: TokenIds, who: str
) -> list[float]:
    """The log-probabilities of a response from the rows of a prompt that ends with it.

    Counted from the end: the first row of a prompt is null, and an engine may leave out those of
    the cached part. Each row must have the token itself, which a shifted one would not.
    """
    if not rows:
        raise BackendError(
            f"{who}: no log-probabilities of the prompt, expected {len(response)}; usually a "
            "server that does not know prompt_logprobs"
        )
    values = []
    last = rows[-len(response) :]
    if len(last) < len(response):
        raise BackendError(f"{who}: expected {len(response)} rows, found {len(last)}")
    for i, (token, row) in enumerate(zip(response, last, strict=True)):
        if row is None or token not in row:
            found = "none" if row is None else f"tokens {sorted(row)}"
            raise BackendError(
                f"{who}: expected a row with token {token} at {i} of the response, found {found}; "
                "usually values that are shifted, or another prompt's"
            )
        values.append(float(row[token].logprob))
    return values


def generate_answer(choice: Any, version: str | int | None, who: str) -> GenerateAnswer:
    if choice.finish_reason not in ("stop", "length"):
        raise BackendError(f"{who}: generation ended with {choice.finish_reason!r}")
    if choice.token_ids is None:
        raise BackendError(f"{who}: no token ids of what was generated; vLLM 0.10.2 is needed")
    return GenerateAnswer(choice.text, tuple(choice.token_ids), choice.finish_reason, version)
