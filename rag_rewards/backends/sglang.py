"""A policy behind SGLang's native `/generate`.

Asked for log-probabilities from the last token of the context on, SGLang itself keeps its radix
cache out of what follows: reuse is exact. So a context is sent with one response first, and with
the others when its tokens are cached.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence

import msgspec

from rag_rewards.backends.http import Limits, Place, Servers, endpoints, run_concurrently
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
from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import (
    Capabilities,
    GenerateAnswer,
    GenerateRequest,
    ScoreAnswer,
    ScoreRequest,
    Tokenizer,
)

# The second of each is that of servers before 0.5.
_MODEL_INFO = ("/model_info", "/get_model_info")
_SERVER_INFO = ("/server_info", "/get_server_info")
# A server's defaults may come from the model's generation_config.json: none of them is meant here.
_SAMPLING = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


# --- what a server sends -------------------------------------------------------------------------


class _Finish(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Meta(msgspec.Struct):
    """`input_token_logprobs` are [log-probability or null, token id, text or null]."""

    finish_reason: _Finish | None = None
    cached_tokens: int = 0
    weight_version: str | int | None = None
    input_token_logprobs: list[tuple[float | None, int, str | None]] | None = None


class _Generated(msgspec.Struct):
    meta_info: _Meta
    text: str = ""
    output_ids: list[int] | None = None


class _Model(msgspec.Struct):
    model_path: str
    tokenizer_path: str | None = None


class _Server(msgspec.Struct):
    max_req_input_len: int | None = None
    context_length: int | None = None


class _Known(msgspec.Struct):
    """What is known of the servers' model."""

    model: _Model
    max_length: int | None


class SglangServer:
    """An SGLang server, or several of the same model.

    url             http:// or https:// addresses; a group of requests stays on one of them
    tokenizer       a tokenizer or its folder; None loads it from the server's folder if it is here
    precision       what the server computes in ("float32", "bfloat16", …): the fingerprint and the
                    tolerances of the self-check depend on it
    weight_version  of the weights it serves; None takes what the server says of each answer
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        precision: str = "unknown",
        weight_version: str | int | None = None,
        api_key: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self.precision = precision
        self.weight_version = weight_version
        self._servers = Servers("sglang", endpoints(url), limits or Limits(), headers)
        self._tokenizer = tokenizer
        self._info: _Known | None = None

    @property
    def fingerprint(self) -> str:
        version = "" if self.weight_version is None else f" version={self.weight_version}"
        return f"sglang {self._known().model.model_path} {self.precision}{version}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(reuses_prefixes=True, precision=self.precision)

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None or isinstance(self._tokenizer, str | os.PathLike):
            model = self._known().model if self._tokenizer is None else None
            folder = (model.tokenizer_path or model.model_path) if model else None
            self._tokenizer = tokenizer_of(self._tokenizer, folder)
        return self._tokenizer

    @property
    def max_length(self) -> int | None:
        return self._known().max_length

    def refresh(self, weight_version: str | int | None = None) -> None:
        """The servers have other weights now. Their caches must have been flushed."""
        self.weight_version, self._info = weight_version, None

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        return await self._servers.each(requests, count_tokens, self._score)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        return await self._servers.each(
            requests, lambda request: len(request.prompt) + request.max_tokens, self._generate
        )

    async def selfcheck(self) -> None:
        """Every server by itself, and whether they agree."""
        async with self._servers.session() as session, session.place(1) as place:
            await self._learn(place)
        first, *others = self._servers.apart()
        for servers in (first, *others):
            with servers.named():
                await selfcheck(self._on(servers))
        for servers in others:
            with servers.named():
                await agree(self._on(servers), self._on(first))

    async def close(self) -> None:
        """Nothing is kept open between calls."""

    def _on(self, servers: Servers) -> SglangServer:
        """This policy on some of its servers."""
        policy = copy.copy(self)
        policy._servers = servers
        return policy

    # --- scoring -------------------------------------------------------------------------------

    async def _score(self, request: ScoreRequest, place: Place) -> ScoreAnswer:
        known, given = await self._learn(place), self.weight_version
        who = f"sglang {known.model.model_path} at {place.endpoint.url}"
        check_request(request, known.max_length, who)
        scored, versions = await self._group(request, place, who)
        if len(versions) > 1:  # the weights changed in between: all of it with the new ones
            scored, versions = await self._group(request, place, who)
        if len(versions) > 1 or self.weight_version != given:
            raise BackendError(f"{who}: the weights changed while a group was scored")
        version = given if given is not None else next(iter(versions), None)
        return score_answer(request, scored, source=who, path="sglang", weight_version=version)

    async def _group(
        self, request: ScoreRequest, place: Place, who: str
    ) -> tuple[list[tuple[TokenSequence, SequenceResult]], set[str | int | None]]:
        """Every sequence, wave by wave, and the weight versions that the server named."""
        scored: list[tuple[TokenSequence, SequenceResult]] = []
        versions: set[str | int | None] = set()
        for wave in waves(distinct_sequences(request)):
            parts = batches(wave, self._servers.limits.batch)
            found = await run_concurrently(self._batch(part, place, who) for part in parts)
            for part, results in zip(parts, found, strict=True):
                for ask, result in zip(part, results, strict=True):
                    versions.add(result.weight_version)
                    run = len(ask.tokens) - result.cached_tokens
                    scored.append((ask, SequenceResult(_values(result, ask, who), run)))
        return scored, versions

    async def _batch(self, group: Sequence[TokenSequence], place: Place, who: str) -> list[_Meta]:
        body = {
            "input_ids": [ask.tokens for ask in group],
            "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": [len(ask.context) - 1 for ask in group],
        }
        found = await place.post("/generate", body, list[_Generated])
        if len(found) != len(group):
            raise BackendError(f"{who}: expected {len(group)} answers, found {len(found)}")
        return [one.meta_info for one in found]

    # --- generation ------------------------------------------------------------------------------

    async def _generate(self, request: GenerateRequest, place: Place) -> GenerateAnswer:
        given = self.weight_version
        parameters = {
            "max_new_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stop": request.stop,
            **_SAMPLING,
        }
        if request.seed is not None:
            parameters["sampling_seed"] = request.seed
        body = {"input_ids": request.prompt, "sampling_params": parameters}
        found = await place.post("/generate", body, _Generated)
        reason = found.meta_info.finish_reason or _Finish()
        who = f"sglang at {place.endpoint.url}"
        if reason.type not in ("stop", "length"):
            raise BackendError(f"{who}: generation ended with {reason.type!r} {reason.message}")
        if found.output_ids is None:
            raise BackendError(f"{who}: no token ids of what was generated")
        version = given if given is not None else found.meta_info.weight_version
        return GenerateAnswer(found.text, tuple(found.output_ids), reason.type, version)

    # --- what the servers say of themselves ------------------------------------------------------

    async def _learn(self, place: Place) -> _Known:
        if self._info is None:
            model = await place.get(_MODEL_INFO, _Model)
            self._info = _known(model, await place.get(_SERVER_INFO, _Server))
        return self._info

    def _known(self) -> _Known:
        if self._info is None:
            model = self._servers.ask_once(_MODEL_INFO, _Model)
            self._info = _known(model, self._servers.ask_once(_SERVER_INFO, _Server))
        return self._info


def _known(model: _Model, server: _Server) -> _Known:
    """All that is scored is input, and the scheduler cuts what is longer than its limit."""
    longest = server.max_req_input_len or server.context_length
    return _Known(model, None if longest is None else longest - 1)


def _values(found: _Meta, ask: TokenSequence, who: str) -> list[float]:
    """The log-probabilities of a response: all but the first, which is always null."""
    reason = found.finish_reason or _Finish()
    if reason.type == "abort":
        raise BackendError(f"{who}: the request was aborted: {reason.message}")
    rows = found.input_token_logprobs
    if not rows:
        raise BackendError(
            f"{who}: no log-probabilities of the input, expected {len(ask.response)}; usually a "
            "server that does not know return_logprob"
        )
    values = [value for value, *_ in rows]
    if values[0] is not None:
        raise BackendError(
            f"{who}: expected null for the last token of the context, found {values[0]}; usually "
            "a server that begins with the token after it, or does not know logprob_start_len"
        )
    if len(values) != len(ask.response) + 1:
        raise BackendError(
            f"{who}: expected {len(ask.response)} log-probabilities behind the null, found "
            f"{len(values) - 1}"
        )
    if None in values[1:]:
        raise BackendError(f"{who}: a null within the log-probabilities of the input")
    return [value for value in values if value is not None]
