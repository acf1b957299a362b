"""A policy on vLLM's OpenAI-compatible server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import (
    Capabilities,
    GenerateAnswer,
    GenerateRequest,
    ScoreAnswer,
    ScoreRequest,
    Tokenizer,
)
from rag_rewards.models.endpoints import Limits
from rag_rewards.models.http import Place, Servers, run_concurrently
from rag_rewards.models.http_policy import HttpPolicy, ServedModel, Version
from rag_rewards.models.http_responses import HttpError
from rag_rewards.models.sampling import sampling_parameters
from rag_rewards.models.selfcheck import agree, selfcheck
from rag_rewards.models.sequences import (
    SequenceResult,
    TokenSequence,
    batches,
    distinct_sequences,
    waves,
)
from rag_rewards.models.vllm.prompt_logprobs import (
    CACHED,
    PLAIN,
    covers_response,
    generate_answer,
    max_sequence_length,
    response_logprobs,
)

# --- responses of the server ---------------------------------------------------------------------


class _Row(msgspec.Struct):
    logprob: float


_Rows = list[dict[int, _Row] | None] | None


class _Choice(msgspec.Struct):
    index: int = 0
    text: str = ""
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    prompt_logprobs: _Rows = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _TokenCounts(msgspec.Struct):
    prompt_tokens_details: _PromptDetails | None = None


class _Completion(msgspec.Struct):
    """The response of /v1/completions."""

    choices: list[_Choice]


class _Generation(msgspec.Struct):
    """The response of /inference/v1/generate, for one prompt."""

    prompt_logprobs: _Rows = None
    usage: _TokenCounts | None = None


class _ModelCard(msgspec.Struct):
    id: str
    root: str | None = None
    max_model_len: int | None = None


class _ModelCards(msgspec.Struct):
    data: list[_ModelCard]


# --- the policy ----------------------------------------------------------------------------------


class VllmServer(HttpPolicy):
    """A policy on vLLM's OpenAI-compatible server, or on several servers of the same model.

    url             http:// or https:// addresses; all sequences of a group go to one server
    model           name of the served model; default: the first model of the server
    tokenizer       a tokenizer or its folder; default: the folder of the model, if it exists on
                    this machine
    precision       precision of the server ("float32", "bfloat16", …), for the fingerprint and for
                    the tolerances of the self-check; a server does not report it
    weight_version  version of the served weights, for the answers and the fingerprint
    cached          read the prefix cache; requires a server that was started with
                    `--enable-scale-out --enable-prompt-tokens-details`. Before the first use, the
                    values are compared with those without the cache; BackendError if they differ
    api_key         key for the Authorization header
    limits          timeouts, retries and concurrency of the requests

    The server holds the logits of a whole chunk of tokens in memory that vLLM does not plan for:
    7.5 GiB for 8,192 tokens and a vocabulary of 152,000. Start it with a small
    `--max-num-batched-tokens`.

    Raises UsageError for an address that is not an HTTP address.
    """

    engine = "vllm"
    model_endpoints = ((("/v1/models",), _ModelCards),)

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        model: str | None = None,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        precision: str = "unknown",
        weight_version: Version = None,
        cached: bool = False,
        api_key: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(
            url,
            tokenizer=tokenizer,
            precision=precision,
            weight_version=weight_version,
            api_key=api_key,
            limits=limits,
        )
        self.model = model
        self.cached = cached
        self._cache_checked = False

    @property
    def model_name(self) -> str:
        """Name of the served model. Sends a request to a server if it is not known yet."""
        return self.model or super().model_name

    @property
    def path(self) -> str:
        """The value of `ScoreAnswer.path`."""
        return "vllm cached" if self.cached else "vllm"

    @property
    def capabilities(self) -> Capabilities:
        """The precision of the servers, and whether they reuse shared prefixes."""
        return replace(super().capabilities, reuses_prefixes=self.cached)

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Return the log-probabilities of each request, or its BackendError."""
        if self.cached and not self._cache_checked:
            await self._check_cached()
        return await super().score(requests)

    async def selfcheck(self) -> None:
        """Check each server, that all servers agree, and the cached method if it is enabled."""
        await super().selfcheck()
        if self.cached:
            await self._check_cached()

    def _described_model(self, *responses: Any) -> ServedModel:
        (cards,) = responses
        for card in cards.data:
            if self.model in (None, card.id):
                return ServedModel(card.id, card.root, max_sequence_length(card.max_model_len))
        names = ", ".join(repr(card.id) for card in cards.data) or "none"
        raise BackendError(f"vllm: the server has no model {self.model!r}; its models are: {names}")

    # --- scoring -------------------------------------------------------------------------------

    async def _score_sequences(
        self, request: ScoreRequest, place: Place
    ) -> tuple[list[tuple[TokenSequence, SequenceResult]], Version]:
        model = await self._fetch_model(place)
        sequences = distinct_sequences(request)
        scored: list[tuple[TokenSequence, SequenceResult]] = []
        if self.cached:
            for wave in waves(sequences):
                results = await run_concurrently(
                    self._score_cached(sequence, model, place) for sequence in wave
                )
                scored += zip(wave, results, strict=True)
            return scored, None
        parts = batches(sequences, self._servers.limits.batch)
        for part, results in zip(
            parts,
            await run_concurrently(self._score_plain(part, model, place) for part in parts),
            strict=True,
        ):
            scored += zip(part, results, strict=True)
        return scored, None

    async def _score_plain(
        self, sequences: Sequence[TokenSequence], model: ServedModel, place: Place
    ) -> list[SequenceResult]:
        """Score sequences in one request, without the cache."""
        prompts = [sequence.tokens for sequence in sequences]
        body = {"model": model.name, "prompt": prompts, **PLAIN}
        choices = (await place.post("/v1/completions", body, _Completion)).choices
        source = self._source(model, place)
        if sorted(choice.index for choice in choices) != list(range(len(sequences))):
            raise BackendError(f"{source}: expected {len(sequences)} choices, found {len(choices)}")
        rows = {choice.index: choice.prompt_logprobs for choice in choices}
        return [
            SequenceResult(
                response_logprobs(rows[i], sequence.response, source), len(sequence.tokens)
            )
            for i, sequence in enumerate(sequences)
        ]

    async def _score_cached(
        self, sequence: TokenSequence, model: ServedModel, place: Place
    ) -> SequenceResult:
        """Score a sequence with the cache, and again without it if too much was cached."""
        body = {"model": model.name, "token_ids": sequence.tokens, "sampling_params": CACHED}
        try:
            generation = await place.post("/inference/v1/generate", body, _Generation, final=(500,))
        except HttpError as error:
            if error.status == 404:
                raise HttpError(
                    f"{error}; cached=True needs a server started with --enable-scale-out", 404
                ) from None
            # An uninitialized row can contain NaN, which cannot be encoded as JSON. The server
            # then answers with status 400 (vLLM 0.32) or 500.
            if error.status not in (400, 500):
                raise
            return (await self._score_plain([sequence], model, place))[0]
        details = generation.usage.prompt_tokens_details if generation.usage else None
        cached = details.cached_tokens if details else None
        source = self._source(model, place)
        if cached is None:
            raise BackendError(
                f"{source}: the server does not report how many tokens were cached: start it with "
                "--enable-prompt-tokens-details, or remove cached=True"
            )
        computed = len(sequence.tokens) - cached
        if not covers_response(cached, sequence):
            (plain,) = await self._score_plain([sequence], model, place)
            return SequenceResult(plain.logprobs, plain.computed + computed)
        values = response_logprobs(generation.prompt_logprobs, sequence.response, source)
        return SequenceResult(values, computed)

    async def _check_cached(self) -> None:
        """Compare the cached with the plain method. Raises BackendError if the values differ."""
        await self._connect()
        for servers in self._servers.split():
            with servers.named_in_errors():
                trial = self._on(servers)
                trial.cached = True
                await selfcheck(trial)
                await agree(trial, self._on(servers))
        self._cache_checked = True

    def _on(self, servers: Servers) -> VllmServer:
        """Return this policy on some of its servers, without the cache."""
        policy = super()._on(servers)
        policy.cached, policy._cache_checked = False, True
        return policy

    # --- generation ------------------------------------------------------------------------------

    async def _generate(self, request: GenerateRequest, place: Place) -> GenerateAnswer:
        model, version = await self._fetch_model(place), self.weight_version
        body = {
            "model": model.name,
            "prompt": [request.prompt],
            "max_tokens": request.max_tokens,
            "stop": request.stop,
            "seed": request.seed,
            "return_token_ids": True,
            **sampling_parameters(request),
        }
        choices = (await place.post("/v1/completions", body, _Completion)).choices
        source = self._source(model, place)
        if len(choices) != 1:
            raise BackendError(f"{source}: expected 1 choice, found {len(choices)}")
        return generate_answer(choices[0], version, source)
