"""A similarity model on an HTTP server: the cosine of two sentence embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import Protocol

from rag_rewards.errors import BackendError, shorten
from rag_rewards.models.endpoints import Limits
from rag_rewards.models.health import Health
from rag_rewards.models.http import Place
from rag_rewards.models.text_servers.connection import Connection
from rag_rewards.models.text_servers.long_texts import halves, plain_text, send_divided
from rag_rewards.models.text_servers.shared import SharedSimilarity
from rag_rewards.models.text_servers.tei import TeiEncoder
from rag_rewards.models.text_servers.vllm import VllmEncoder

Pair = tuple[str, str]
Vector = list[float]
KEY_VARIABLE = "RAG_REWARDS_SIMILARITY_KEY"


class EmbeddingApi(Protocol):
    """An API that returns embeddings of texts."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def batch(self) -> int:
        """Maximum number of texts in one request."""
        ...

    async def embed(self, texts: Sequence[str], place: Place) -> list[Vector]: ...


class SimilarityServer:
    """Cosine similarity, −1 to 1, of (text, reference) pairs, by a model on one or several servers.

    url      addresses of `rag-rewards serve`, of text-embeddings-inference, of vLLM, or of another
             server with the embeddings API of OpenAI
    api_key  key for the Authorization header; default: RAG_REWARDS_SIMILARITY_KEY
    limits   timeouts, retries, concurrency, and texts in a request

    Each distinct text is sent once per call. A text that is too long is divided, and its embedding
    is the mean of those of its parts, weighted by their lengths. An empty text or reference has
    the similarity 0.0. The error of a request is the result of its pairs.

    Raises UsageError for invalid arguments.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        api_key: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._connection = Connection.of("similarity", url, api_key, KEY_VARIABLE, limits)
        self._api: SharedSimilarity | EmbeddingApi | None = None

    @property
    def health(self) -> Health:
        """The health of the servers."""
        return self._connection.servers.health

    @property
    def fingerprint(self) -> str:
        """The model, as the server describes it."""
        if self._api is None:
            self._connection.description()
            self._api = self._new_api()
        return self._api.fingerprint

    async def similarity(self, pairs: Sequence[Pair]) -> list[float | Exception]:
        """Return the similarity, or the error, of each (text, reference) pair, in order."""
        complete = [(text, other) for text, other in pairs if text.strip() and other.strip()]
        if not complete:
            return [0.0] * len(pairs)
        if self._api is None:
            await self._connection.describe()
            self._api = self._new_api()
        values = await self._values(self._api, complete)
        return [values.get(pair, 0.0) for pair in pairs]

    async def close(self) -> None:
        """Do nothing: no connection is kept open between calls."""

    async def _values(
        self, api: SharedSimilarity | EmbeddingApi, pairs: Sequence[Pair]
    ) -> dict[Pair, float | Exception]:
        if isinstance(api, SharedSimilarity):
            return await self._connection.in_batches(
                pairs, api.batch, lambda pair: len(pair[0]) + len(pair[1]), api.send
            )
        texts = [text for pair in pairs for text in pair]
        embeddings = await self._connection.in_batches(
            texts, api.batch, len, lambda batch, place: self._embed(api, batch, place)
        )
        return {pair: _cosine(embeddings[pair[0]], embeddings[pair[1]]) for pair in pairs}

    async def _embed(self, api: EmbeddingApi, texts: Sequence[str], place: Place) -> list[Vector]:
        """Return one vector of length 1 for each text."""

        async def send(parts: Sequence[str]) -> list[tuple[Vector, int]]:
            vectors = await api.embed([plain_text(part) for part in parts], place)
            if len(vectors) != len(parts):
                raise self._connection.error(
                    f"returned {len(vectors)} results for {len(parts)} texts"
                )
            return [
                (self._unit(vector), len(part)) for vector, part in zip(vectors, parts, strict=True)
            ]

        values = await send_divided(texts, send, _divided)
        return [self._mean(parts) for parts in values]

    def _mean(self, parts: Sequence[tuple[Vector, int]]) -> Vector:
        if len(parts) == 1:
            return parts[0][0]
        weighted = ([value * weight for value in vector] for vector, weight in parts)
        return self._unit([math.fsum(values) for values in zip(*weighted, strict=True)])

    def _unit(self, vector: Vector) -> Vector:
        norm = math.sqrt(math.fsum(map(mul, vector, vector)))
        if not math.isfinite(norm) or norm == 0:
            raise self._connection.error("returned an embedding without a direction")
        return [value / norm for value in vector]

    def _new_api(self) -> SharedSimilarity | EmbeddingApi:
        connection = self._connection
        description = connection.description()
        if description.api == "rag-rewards":
            return SharedSimilarity.of(connection, description)
        if description.api == "tei":
            return TeiEncoder.of(connection, description)
        return VllmEncoder.of(connection, description)


def _divided(text: str) -> list[str]:
    parts = halves(text, overlap=False)
    if parts is None:
        raise BackendError(f"the server refuses {shorten(text, 60)!r} as too long")
    return parts


def _cosine(first: Vector | Exception, second: Vector | Exception) -> float | Exception:
    if isinstance(first, Exception):
        return first
    if isinstance(second, Exception):
        return second
    if len(first) != len(second):
        return BackendError("the server returned embeddings of different lengths")
    cosine: float = math.fsum(map(mul, first, second))
    return min(max(cosine, -1.0), 1.0)
