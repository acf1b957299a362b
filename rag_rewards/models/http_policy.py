"""The base class of the policies that score and generate on HTTP servers (vLLM, SGLang)."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
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
from rag_rewards.models.endpoints import Limits, endpoints
from rag_rewards.models.health import Health
from rag_rewards.models.http import Place, Servers
from rag_rewards.models.selfcheck import agree, selfcheck
from rag_rewards.models.sequences import (
    SequenceResult,
    TokenSequence,
    check_request,
    count_tokens,
    score_answer,
)
from rag_rewards.models.tokenizer import resolve_tokenizer

_P = TypeVar("_P", bound="HttpPolicy")
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


class HttpPolicy(ABC):
    """A policy on one or several HTTP servers of the same model.

    A subclass adds the requests of its engine and the parsing of the responses.
    """

    engine: ClassVar[str]
    """Name of the engine, for messages and the fingerprint."""
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
        self._servers = Servers(self.engine, endpoints(url), limits or Limits(), headers)
        self._tokenizer = tokenizer
        self._model: ServedModel | None = None

    # --- the engine ----------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The value of `ScoreAnswer.path`."""
        return self.engine

    @abstractmethod
    def _described_model(self, *responses: Any) -> ServedModel:
        """Return the model from the responses to `model_endpoints`."""

    @abstractmethod
    async def _score_sequences(
        self, request: ScoreRequest, place: Place
    ) -> tuple[list[tuple[TokenSequence, SequenceResult]], Version]:
        """Score the distinct sequences of a request.

        Returns their results and the version of the weights that the server reports.
        """

    @abstractmethod
    async def _generate(self, request: GenerateRequest, place: Place) -> GenerateAnswer:
        """Generate one continuation."""

    @property
    def health(self) -> Health:
        """The health of the servers."""
        return self._servers.health

    # --- identity ------------------------------------------------------------------------------

    @property
    def model_name(self) -> str:
        """Name of the served model. Sends a request to a server if it is not known yet."""
        return self._served_model().name

    @property
    def fingerprint(self) -> str:
        """Engine, model, precision and, if it is known, the version of the weights."""
        version = "" if self.weight_version is None else f" version={self.weight_version}"
        return f"{self.engine} {self.model_name} {self.precision}{version}"

    @property
    def capabilities(self) -> Capabilities:
        """The precision of the servers; they reuse the prefixes that sequences share.

        With a version of the weights, they count as those that generate the rollouts.
        """
        is_live = self.weight_version is not None
        return Capabilities(reuses_prefixes=True, precision=self.precision, is_live=is_live)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, loaded on first use. Raises UsageError if there is none to load."""
        if self._tokenizer is None or isinstance(self._tokenizer, str | os.PathLike):
            folder = self._served_model().folder if self._tokenizer is None else None
            self._tokenizer = resolve_tokenizer(self._tokenizer, folder)
        return self._tokenizer

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens of context and response, None if the server reports none."""
        return self._served_model().max_length

    def refresh(self, weight_version: Version = None) -> None:
        """Declare that the servers have new weights. Their prefix caches must have been reset."""
        self.weight_version, self._model = weight_version, None

    # --- the protocol --------------------------------------------------------------------------

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Return the log-probabilities of each request, or its BackendError."""
        return await self._servers.map(requests, count_tokens, self._score)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        """Return one continuation for each request, or its BackendError."""
        return await self._servers.map(
            requests, lambda request: len(request.prompt) + request.max_tokens, self._generate
        )

    async def selfcheck(self) -> None:
        """Check each server, and that all servers give the same values. Raises BackendError."""
        await self._connect()
        first, *others = self._servers.split()
        for servers in (first, *others):
            with servers.named_in_errors():
                await selfcheck(self._on(servers))
        for servers in others:
            with servers.named_in_errors():
                await agree(self._on(servers), self._on(first))

    async def close(self) -> None:  # noqa: B027 (a method of the protocol)
        """Do nothing: no connection is kept open between calls."""

    # --- parts ---------------------------------------------------------------------------------

    async def _score(self, request: ScoreRequest, place: Place) -> ScoreAnswer:
        """Score a request, with the same weights for all of its values."""
        model, version = await self._fetch_model(place), self.weight_version
        source = self._source(model, place)
        check_request(request, model.max_length, source)
        results, reported = await self._score_sequences(request, place)
        if self.weight_version != version:
            raise weights_changed(source)
        return score_answer(
            request,
            results,
            source=source,
            path=self.path,
            weight_version=reported if version is None else version,
        )

    def _source(self, model: ServedModel, place: Place) -> str:
        """Return the beginning of a message about a server."""
        return f"{self.engine} {model.name} at {place.endpoint.url}"

    def _on(self: _P, servers: Servers) -> _P:
        """Return this policy on some of its servers."""
        policy = copy.copy(self)
        policy._servers = servers
        return policy

    async def _fetch_model(self, place: Place) -> ServedModel:
        if self._model is None:
            self._model = self._described_model(
                *[await place.get(paths, kind) for paths, kind in self.model_endpoints]
            )
        return self._model

    async def _connect(self) -> None:
        """Fetch the model in advance, so that no property blocks an event loop with a request."""
        async with self._servers.session() as session, session.place(1) as place:
            await self._fetch_model(place)

    def _served_model(self) -> ServedModel:
        if self._model is None:
            self._model = self._described_model(
                *[self._servers.get_sync(paths, kind) for paths, kind in self.model_endpoints]
            )
        return self._model


def weights_changed(source: str) -> BackendError:
    """Return the error of a request whose values come from different weights."""
    return BackendError(f"{source}: the weights changed while a group was scored")
