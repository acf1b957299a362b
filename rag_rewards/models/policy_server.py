"""The base class of the policies that score and generate on HTTP servers (vLLM, SGLang)."""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import (
    Capabilities,
    GenerateAnswer,
    GenerateRequest,
    ScoreAnswer,
    ScoreRequest,
    Tokenizer,
)
from rag_rewards.models.addresses import servers_of
from rag_rewards.models.calls import run_concurrently
from rag_rewards.models.client import Client, ModelServers, Sender, without_frames
from rag_rewards.models.limits import Limits
from rag_rewards.models.local_models import resolve_tokenizer
from rag_rewards.models.selfcheck import agree, selfcheck
from rag_rewards.models.sequences import (
    SequenceResult,
    TokenSequence,
    check_request,
    count_tokens,
    distinct_sequences,
    score_answer,
    waves,
)

_P = TypeVar("_P", bound="PolicyServer")
_R = TypeVar("_R")
_A = TypeVar("_A")
Version = str | int | None
"""Version of the weights, None if unknown."""


@dataclass(frozen=True)
class ServedModel:
    """The model of the servers, as they describe it.

    name        name of the model, for requests, messages and the fingerprint
    folder      folder of its tokenizer on the server
    max_length  maximum number of tokens of context and response, None if unknown
    """

    name: str
    folder: str | None
    max_length: int | None


class PolicyServer(ModelServers[ServedModel]):
    """A policy on one or several HTTP servers of the same model.

    A subclass adds the requests of its engine and the parsing of the responses.
    """

    engine: ClassVar[str]
    """Name of the engine, for messages, the fingerprint and `ScoreAnswer.path`."""
    reuses_prefixes: ClassVar[bool]
    """Whether the servers find the prefixes of sequences in their cache when they score."""
    model_endpoints: ClassVar[Sequence[tuple[Sequence[str], Any]]]
    """Requests that describe the model: alternative paths, and the type of the response."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        precision: str = "unknown",
        weight_version: Version = None,
        api_key: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self.precision = precision
        self.weight_version = weight_version
        super().__init__(Client(self.engine, servers_of(url), limits or Limits(), headers))
        self._tokenizer = tokenizer

    # --- the engine ----------------------------------------------------------------------------

    @abstractmethod
    def _described_model(self, *responses: Any) -> ServedModel:
        """Return the model from the responses to `model_endpoints`."""

    @abstractmethod
    async def _score_batch(
        self, sequences: Sequence[TokenSequence], model: ServedModel, sender: Sender
    ) -> list[tuple[SequenceResult, Version]]:
        """Score sequences in one request.

        Returns the result of each, and the version of the weights that the server reports.
        """

    @abstractmethod
    async def _generate(
        self, request: GenerateRequest, model: ServedModel, sender: Sender
    ) -> GenerateAnswer:
        """Generate one continuation."""

    # --- identity ------------------------------------------------------------------------------

    @property
    def model_name(self) -> str:
        """Name of the served model. Sends a request to a server if it is not known yet."""
        return self._described_sync().name

    @property
    def fingerprint(self) -> str:
        """Engine, model, precision and, if it is known, the version of the weights."""
        version = "" if self.weight_version is None else f" version={self.weight_version}"
        return f"{self.engine} {self.model_name} {self.precision}{version}"

    @property
    def capabilities(self) -> Capabilities:
        """The precision. Servers with a version of the weights generate the rollouts."""
        return Capabilities(self.precision, is_live=self.weight_version is not None)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, loaded on first use. Raises UsageError if there is none to load."""
        if self._tokenizer is None or isinstance(self._tokenizer, str | os.PathLike):
            folder = self._described_sync().folder if self._tokenizer is None else None
            self._tokenizer = resolve_tokenizer(self._tokenizer, folder)
        return self._tokenizer

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens of context and response, None if the server reports none."""
        return self._described_sync().max_length

    def refresh(self, weight_version: Version = None) -> None:
        """Declare that the servers have new weights. Their prefix caches must have been reset."""
        self.weight_version, self._description = weight_version, None

    # --- the protocol --------------------------------------------------------------------------

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Return the log-probabilities of each request, or its BackendError."""
        return await self._answer_each(requests, self._score, count_tokens)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        """Return one continuation for each request, or its BackendError."""
        return await self._answer_each(
            requests, self._generate, lambda request: len(request.prompt) + request.max_tokens
        )

    async def selfcheck(self) -> None:
        """Check each server, and that all servers give the same values. Raises BackendError."""
        # In advance, so that no property blocks an event loop with a request.
        await self._described()
        first, *others = self._client.split()
        for client in (first, *others):
            with _named_in_errors(client):
                await selfcheck(self._on(client))
        for client in others:
            with _named_in_errors(client):
                await agree(self._on(client), self._on(first))

    # --- parts ---------------------------------------------------------------------------------

    async def _answer_each(
        self,
        requests: Sequence[_R],
        answer: Callable[[_R, ServedModel, Sender], Awaitable[_A]],
        load: Callable[[_R], int],
    ) -> list[_A | Exception]:
        """Answer requests of the model that the servers describe. Its error is that of all.

        The description and the answers have one deadline.
        """
        if not requests:
            return []
        deadline = self._client.new_deadline()
        try:
            model = await self._described(deadline)
        except BackendError as error:
            return [without_frames(error)] * len(requests)
        return await self._client.map(
            requests,
            lambda request, sender: answer(request, model, sender),
            load=load,
            deadline=deadline,
        )

    async def _score(
        self, request: ScoreRequest, model: ServedModel, sender: Sender
    ) -> ScoreAnswer:
        """Score a request, with the same weights for all of its values."""
        version = self.weight_version
        source = self._source(model, sender)
        check_request(request, model.max_length, source)
        for _ in range(2):  # once more if the weights changed in between
            results, versions = await self._score_sequences(request, model, sender)
            if len(versions) <= 1:
                break
        if len(versions) > 1 or self.weight_version != version:
            raise weights_changed(source)
        reported = next(iter(versions), None)
        return score_answer(
            request,
            results,
            source=source,
            path=self.engine,
            weight_version=reported if version is None else version,
        )

    async def _score_sequences(
        self, request: ScoreRequest, model: ServedModel, sender: Sender
    ) -> tuple[list[tuple[TokenSequence, SequenceResult]], set[Version]]:
        """Score the distinct sequences; also return the weight versions of the results."""
        sequences = distinct_sequences(request)
        scored: list[tuple[TokenSequence, SequenceResult]] = []
        versions: set[Version] = set()
        size = self._client.limits.batch
        for wave in waves(sequences) if self.reuses_prefixes else [sequences]:
            parts = [wave[start : start + size] for start in range(0, len(wave), size)]
            answers = await run_concurrently(
                self._score_batch(part, model, sender) for part in parts
            )
            for part, of_part in zip(parts, answers, strict=True):
                for sequence, (result, version) in zip(part, of_part, strict=True):
                    scored.append((sequence, result))
                    versions.add(version)
        return scored, versions

    def _source(self, model: ServedModel, sender: Sender) -> str:
        """Return the beginning of a message about a server."""
        return f"{self.engine} {model.name} at {sender.server.url}"

    def _on(self: _P, client: Client) -> _P:
        """Return this policy on some of its servers."""
        policy = copy.copy(self)
        policy._client = client
        return policy

    async def _describe(self, sender: Sender) -> ServedModel:
        return self._described_model(
            *[await sender.get(paths, kind) for paths, kind in self.model_endpoints]
        )


@contextmanager
def _named_in_errors(client: Client) -> Iterator[None]:
    """Add the addresses of the servers to each BackendError of the block."""
    try:
        yield
    except BackendError as error:
        raise BackendError(f"{client.urls}: {error}") from error


def weights_changed(source: str) -> BackendError:
    """Return the error of a request whose values come from different weights."""
    return BackendError(f"{source}: the weights changed while a group was scored")


NEUTRAL_SAMPLING = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Parameters that leave the distribution of the model unchanged.

They are sent explicitly, because the defaults of a server may come from the model's
generation_config.json.
"""


def sampling_parameters(request: GenerateRequest) -> dict[str, float]:
    """Return the parameters of a request, with all other parameters neutral.

    >>> sampling_parameters(GenerateRequest((1,), temperature=0.6, top_p=0.9))["top_p"]
    0.9
    """
    return {**NEUTRAL_SAMPLING, "temperature": request.temperature, "top_p": request.top_p}
