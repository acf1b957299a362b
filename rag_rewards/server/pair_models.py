"""The entailment and similarity models of a server, for other processes.

POST /entailment and POST /similarity take pairs of texts and return one number for each pair.
GET /models describes the models. Requests that arrive while a model is busy form one batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from rag_rewards import __version__
from rag_rewards.errors import BackendError, is_control_flow
from rag_rewards.evidence.protocols import ContradictionModel, Models

Pair = tuple[str, str]
T = TypeVar("T")
MODELS_ROUTE = "/models"
ENTAILMENT_ROUTE = "/entailment"
SIMILARITY_ROUTE = "/similarity"


class EntailmentRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /entailment: (premise, hypothesis) pairs."""

    pairs: list[Pair]
    contradiction: bool = False
    """Whether to return the probabilities of a contradiction as well."""


class SimilarityRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /similarity: (text, reference) pairs."""

    pairs: list[Pair]


@dataclass(eq=False)
class _Waiting(Generic[T]):
    """The pairs of one request, and the place of their results."""

    pairs: Sequence[Pair]
    results: asyncio.Future[Sequence[T | Exception]]


class PairBatcher(Generic[T]):
    """Calls a model with the pairs of several requests at once, one batch after the other.

    If the model fails for a batch, it is called for each request of the batch, so that a request
    does not fail because of the pairs of another one.

    size  maximum number of pairs in a batch of several requests
    """

    def __init__(
        self, call: Callable[[Sequence[Pair]], Awaitable[Sequence[T | Exception]]], size: int
    ) -> None:
        self.waiting = 0
        """Number of pairs that wait for the model."""
        self._call, self._size = call, size
        self._queue: deque[_Waiting[T]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def __call__(self, pairs: Sequence[Pair]) -> list[T]:
        """Return a result for each pair. The error of a pair is raised."""
        request: _Waiting[T] = _Waiting(pairs, asyncio.get_running_loop().create_future())
        self._queue.append(request)
        self.waiting += len(pairs)
        if self._worker is None:
            self._worker = asyncio.ensure_future(self._work())
        try:
            results = await request.results
        except asyncio.CancelledError:
            if request in self._queue:
                self._queue.remove(request)
                self.waiting -= len(pairs)
            raise
        values: list[T] = []
        for result in results:
            if isinstance(result, Exception):
                raise result
            values.append(result)
        return values

    async def _work(self) -> None:
        try:
            while self._queue:
                await self._run(self._next_batch())
        finally:
            self._worker = None

    def _next_batch(self) -> list[_Waiting[T]]:
        """Remove the requests of the next batch from the queue and return them."""
        batch: list[_Waiting[T]] = []
        size = 0
        while self._queue and (not batch or size + len(self._queue[0].pairs) <= self._size):
            batch.append(self._queue.popleft())
            size += len(batch[-1].pairs)
        self.waiting -= size
        return batch

    async def _run(self, batch: Sequence[_Waiting[T]]) -> None:
        try:
            if await self._call_model(batch, is_last=len(batch) == 1):
                return
            for request in batch:
                if not request.results.done():
                    await self._call_model([request], is_last=True)
        finally:  # after an exception, these requests would wait for ever
            for request in batch:
                request.results.cancel()

    async def _call_model(self, batch: Sequence[_Waiting[T]], is_last: bool) -> bool:
        """Set the results of requests; return False if the model fails and this is not the last."""
        results: Sequence[T | Exception]
        pairs = [pair for request in batch for pair in request.pairs]
        try:
            results = await self._call(pairs)
        except BaseException as error:
            if is_control_flow(error):
                raise
            if not is_last:
                return False
            results = [_failure(error)] * len(pairs)
        at = 0
        for request in batch:
            end = at + len(request.pairs)
            if not request.results.done():
                request.results.set_result(results[at:end])
            at = end
        return True


def _failure(error: BaseException) -> BackendError:
    return error if isinstance(error, BackendError) else BackendError(f"the model failed: {error}")


class MissingModel(Exception):
    """A request for a model that the server does not have."""


class PairModels:
    """The entailment and the similarity model of a server.

    models  the models of the server; others than these two are ignored
    size    maximum number of pairs in a batch of several requests
    """

    def __init__(self, models: Models, size: int) -> None:
        entailment, similarity = models.entailment, models.similarity
        self._models = models
        self._entail = PairBatcher(entailment.entail, size) if entailment else None
        self._similar = PairBatcher(similarity.similarity, size) if similarity else None
        self._both = None
        if isinstance(entailment, ContradictionModel):
            self._both = PairBatcher(entailment.entail_and_contradict, size)

    @property
    def waiting(self) -> int:
        """Number of pairs that wait for a model."""
        batchers = (self._entail, self._both, self._similar)
        return sum(batcher.waiting for batcher in batchers if batcher is not None)

    def description(self) -> dict[str, Any]:
        """Return the version of the server, and the fingerprint of each model."""
        models: dict[str, Any] = {"rag_rewards": __version__}
        for name in ("entailment", "similarity"):
            model = getattr(self._models, name)
            models[name] = None if model is None else {"fingerprint": model.fingerprint}
        return models

    async def entailment(self, request: EntailmentRequest) -> dict[str, Any]:
        """Return the probabilities of entailment and, on request, of contradiction."""
        if self._entail is None:
            raise MissingModel("this server has no entailment model: start it with --nli MODEL")
        if not request.contradiction:
            return {"entailment": await self._entail(request.pairs)}
        if self._both is None:
            raise BackendError("the entailment model has no label for contradiction")
        both = await self._both(request.pairs)
        return {
            "entailment": [entailment for entailment, _ in both],
            "contradiction": [contradiction for _, contradiction in both],
        }

    async def similarity(self, request: SimilarityRequest) -> dict[str, Any]:
        """Return the similarities of the pairs."""
        if self._similar is None:
            raise MissingModel(
                "this server has no similarity model: start it with --similarity MODEL"
            )
        return {"similarity": await self._similar(request.pairs)}
