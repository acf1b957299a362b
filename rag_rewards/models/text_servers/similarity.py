"""A similarity model on an HTTP server: the cosine of two sentence embeddings."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from operator import mul

import msgspec

from rag_rewards.errors import BackendError
from rag_rewards.models.client import Sender
from rag_rewards.models.limits import Limits
from rag_rewards.models.nli.pieces import Pair
from rag_rewards.models.text_servers.long_texts import (
    halves,
    plain_text,
    send_divided,
)
from rag_rewards.models.text_servers.server import (
    SHARED_BATCH,
    VLLM_BATCH,
    Api,
    Description,
    Rows,
    TextServer,
)

Vector = list[float]


class _Similarities(msgspec.Struct):
    similarity: list[float]


class _Embedding(msgspec.Struct):
    index: int
    embedding: Vector


class SimilarityServer(TextServer):
    """Cosine similarity, −1 to 1, of (text, reference) pairs, by a model on one or several servers.

    url      addresses of `rag-rewards serve`, of text-embeddings-inference, of vLLM, or of another
             server with the embeddings API of OpenAI
    api_key  key for the Authorization header; default: RAG_REWARDS_SIMILARITY_KEY
    limits   timeouts, retries, concurrency, and texts in a request

    Each distinct text is sent once per call. A text that is too long is divided, and its embedding
    is the mean of those of its parts, weighted by their lengths. An empty text or reference has
    the similarity 0.0. The error of a request is the result of its pairs.

    Raises UsageError for invalid arguments, and MissingExtraError if httpx is not installed.
    """

    kind = "similarity"
    key_variable = "RAG_REWARDS_SIMILARITY_KEY"

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        api_key: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(url, api_key, limits)
        self._returns_similarities = False

    async def similarity(self, pairs: Sequence[Pair]) -> list[float | Exception]:
        """Return the similarity, or the error, of each (text, reference) pair, in order."""
        complete = [(text, other) for text, other in pairs if text.strip() and other.strip()]
        if not complete:
            return [0.0] * len(pairs)
        deadline = self._client.new_deadline()
        api = await self._described(deadline)
        if self._returns_similarities:
            values = await self._in_batches(
                complete, api.batch, lambda pair: len(pair[0]) + len(pair[1]), api.send, deadline
            )
        else:
            texts = [text for pair in complete for text in pair]
            vectors = await self._in_batches(texts, api.batch, len, api.send, deadline)
            values = {pair: _cosine(vectors[pair[0]], vectors[pair[1]]) for pair in complete}
        return [values.get(pair, 0.0) for pair in pairs]

    def _new_api(self, description: Description) -> Api:
        self._returns_similarities = description.api == "rag-rewards"
        if self._returns_similarities:
            if description.similarity is None:
                raise self._error(
                    "has no similarity model: start the server with --similarity MODEL"
                )
            return Api(description.similarity.fingerprint, SHARED_BATCH, self._compare)
        if description.api == "vllm":
            model = description.data[0].id

            async def embed_openai(texts: Sequence[str], sender: Sender) -> list[Vector]:
                body = {"model": model, "input": texts, "encoding_format": "float"}
                answer = await sender.post("/v1/embeddings", body, Rows[_Embedding])
                return [row.embedding for row in self._in_order(answer.data, texts)]

            return Api(f"similarity openai:{model}", VLLM_BATCH, self._divided(embed_openai))
        if "embedding" not in (description.model_type or {}):
            raise self._error(f"serves {description.tei_model}, which is not an encoder")

        async def embed(texts: Sequence[str], sender: Sender) -> list[Vector]:
            body = {"inputs": texts, "truncate": False, "normalize": True}
            return await sender.post("/embed", body, list[Vector])

        return Api(
            f"similarity tei:{description.tei_model}",
            description.max_client_batch_size,
            self._divided(embed),
        )

    async def _compare(self, pairs: Sequence[Pair], sender: Sender) -> list[float]:
        """Return the similarities that `rag-rewards serve` computes."""
        answer = await sender.post("/similarity", {"pairs": pairs}, _Similarities)
        for value in answer.similarity:
            if not -1.0001 <= value <= 1.0001:
                raise self._error(f"returned {value:g}, which is not a similarity")
        return [min(max(value, -1.0), 1.0) for value in answer.similarity]

    def _divided(
        self, embed: Callable[[Sequence[str], Sender], Awaitable[list[Vector]]]
    ) -> Callable[[Sequence[str], Sender], Awaitable[list[Vector]]]:
        """Return a function that divides texts, and returns one vector of length 1 for each."""

        async def embed_divided(texts: Sequence[str], sender: Sender) -> list[Vector]:
            async def send(parts: Sequence[str]) -> list[tuple[Vector, int]]:
                vectors = await embed([plain_text(part) for part in parts], sender)
                self._check_count(vectors, parts)
                return list(zip(map(self._unit, vectors), map(len, parts), strict=True))

            return [self._mean(parts) for parts in await send_divided(texts, send, halves)]

        return embed_divided

    def _mean(self, parts: Sequence[tuple[Vector, int]]) -> Vector:
        if len(parts) == 1:
            return parts[0][0]
        weighted = ([value * weight for value in vector] for vector, weight in parts)
        return self._unit([math.fsum(values) for values in zip(*weighted, strict=True)])

    def _unit(self, vector: Vector) -> Vector:
        norm = math.sqrt(math.fsum(map(mul, vector, vector)))
        if not math.isfinite(norm) or norm == 0:
            raise self._error("returned an embedding without a direction")
        return [value / norm for value in vector]


def _cosine(first: Vector | Exception, second: Vector | Exception) -> float | Exception:
    if isinstance(first, Exception):
        return first
    if isinstance(second, Exception):
        return second
    if len(first) != len(second):
        return BackendError("the server returned embeddings of different lengths")
    cosine: float = math.fsum(map(mul, first, second))
    return min(max(cosine, -1.0), 1.0)
