"""The servers of one model of texts: what they say about the model, and requests in batches.

The description of a model decides which of the three APIs its server has:

- `rag-rewards serve`: GET /models
- text-embeddings-inference (checked against its router in version 1.9.3): GET /info
- vLLM (checked against its entrypoints/pooling in version 0.32), and other servers with the
  embeddings API of OpenAI: GET /v1/models
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.models.addresses import servers_of
from rag_rewards.models.client import Client, ModelServers, Sender, without_frames
from rag_rewards.models.health import BackendUnavailable
from rag_rewards.models.limits import Limits
from rag_rewards.models.responses import HttpError

R = TypeVar("R")
T = TypeVar("T", bound=Hashable)
PATHS = ("/info", "/models", "/v1/models")
"""The paths in the order of the requests. Each API answers the paths before its own with 404."""
SHARED_BATCH = 1024
"""Maximum number of pairs in a request that `rag-rewards serve` accepts by default."""
VLLM_BATCH = 64
_REFUSALS = (400, 413, 422, 424)
"""Statuses of a request that can succeed without one of its texts."""
LIMITS = Limits(timeout=60.0, deadline=600.0, concurrency=4, batch=16)
"""Limits of one process. Eight processes together send at most the 512 texts at a time that
text-embeddings-inference accepts by default."""


class SharedModel(msgspec.Struct):
    """A model of `rag-rewards serve`."""

    fingerprint: str


class Rows(msgspec.Struct, Generic[R]):
    """A response of an OpenAI-compatible server with one row for each item."""

    data: list[R]


class ModelCard(msgspec.Struct):
    """A model in the list of an OpenAI-compatible server; `root` is its folder."""

    id: str
    root: str | None = None
    max_model_len: int | None = None


class Description(msgspec.Struct):
    """The response of any of the paths. Each API sets other fields."""

    rag_rewards: str | None = None
    entailment: SharedModel | None = None
    similarity: SharedModel | None = None

    model_type: Mapping[str, Any] | None = None
    model_id: str = ""
    model_sha: str | None = None
    model_dtype: str = ""
    max_client_batch_size: int = 32

    data: list[ModelCard] = []

    @property
    def api(self) -> Literal["rag-rewards", "tei", "vllm"] | None:
        """The API of the server, None if the response belongs to another server."""
        if self.rag_rewards is not None:
            return "rag-rewards"
        if self.model_type is not None:
            return "tei"
        return "vllm" if self.data else None

    @property
    def tei_model(self) -> str:
        """The model of text-embeddings-inference with its revision and precision."""
        revision = f"@{self.model_sha[:12]}" if self.model_sha else ""
        return f"{self.model_id}{revision} {self.model_dtype}".strip()


@dataclass(frozen=True)
class Api:
    """How the servers compute values.

    fingerprint  the model and the settings that affect a value
    batch        maximum number of items in a request
    send         sends a request for items, and returns their values
    """

    fingerprint: str
    batch: int
    send: Callable[..., Awaitable[Sequence[Any]]]


class TextServer(ModelServers[Api]):
    """One or several servers of one model. A subclass chooses the API by the description."""

    kind: ClassVar[str]
    """Beginning of messages about the servers."""
    key_variable: ClassVar[str]
    """Environment variable with the default key."""

    def __init__(
        self, url: str | Sequence[str], api_key: str | None, limits: Limits | None
    ) -> None:
        key = api_key if api_key is not None else os.environ.get(self.key_variable, "").strip()
        if not (key.isascii() and (not key or key.isprintable())):
            raise UsageError(f"{self.key_variable} must contain printable ASCII characters only")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        keys = f"api_key or {self.key_variable}"
        servers = servers_of(url)
        super().__init__(Client(self.kind, servers, limits or LIMITS, headers, keys=keys))

    @abstractmethod
    def _new_api(self, description: Description) -> Api:
        """Return the API of servers with this description. BackendError without such a model."""

    @property
    def fingerprint(self) -> str:
        """The model and the settings that affect a value, as the server describes them."""
        return self._described_sync().fingerprint

    async def _describe(self, sender: Sender) -> Api:
        description = await sender.get(PATHS, Description)
        if description.api is None:
            raise self._error(
                "is neither `rag-rewards serve` nor text-embeddings-inference nor vLLM"
            )
        return self._new_api(description)

    def _error(self, reason: str) -> BackendError:
        """Return an error about the servers."""
        return BackendError(f"{self.kind}: {self._client.urls} {reason}")

    def _check_count(self, results: Sequence[Any], items: Sequence[Any]) -> None:
        """Raise BackendError unless there is one result for each item."""
        if len(results) != len(items):
            raise self._error(f"returned {len(results)} results for {len(items)} texts")

    def _in_order(self, rows: Sequence[Any], items: Sequence[Any]) -> list[Any]:
        """Return the rows of vLLM by their index. BackendError unless each item has one."""
        ordered = sorted(rows, key=lambda row: int(row.index))
        if [row.index for row in ordered] != list(range(len(items))):
            raise self._error(f"returned {len(rows)} results for {len(items)} texts")
        return ordered

    def _probability(self, value: float) -> float:
        """Return a probability without its rounding error. BackendError for another number."""
        if not -1e-4 <= value <= 1 + 1e-4:
            raise self._error(
                f"returned {value:g}, which is not a probability: the model must have no "
                "activation other than softmax or sigmoid"
            )
        return min(max(value, 0.0), 1.0)

    async def _in_batches(
        self,
        items: Sequence[T],
        batch: int,
        length: Callable[[T], int],
        send: Callable[[Sequence[T], Sender], Awaitable[Sequence[Any]]],
        deadline: float,
    ) -> dict[T, Any]:
        """Return the result or the error of each distinct item.

        Items of similar length are in one batch. If a batch is refused, its halves are sent, so
        that an item that cannot be processed does not affect the other items.
        """
        distinct = sorted(dict.fromkeys(items), key=length)
        size = max(min(batch, self._client.limits.batch), 1)
        batches = [distinct[at : at + size] for at in range(0, len(distinct), size)]

        async def isolated(batch: Sequence[T], sender: Sender) -> list[Any]:
            try:
                values = await send(batch, sender)
                self._check_count(values, batch)
                return list(values)
            except BackendError as error:
                if len(batch) == 1 or not _can_be_of_one_item(error):
                    return [without_frames(error)] * len(batch)
            middle = len(batch) // 2
            first = await isolated(batch[:middle], sender)
            return first + await isolated(batch[middle:], sender)

        answers = await self._client.map(
            batches, isolated, load=lambda batch: sum(map(length, batch)), deadline=deadline
        )
        results: dict[T, Any] = {}
        for batch_items, values in zip(batches, answers, strict=True):
            failed = isinstance(values, Exception)
            each = [values] * len(batch_items) if failed else values
            results.update(zip(batch_items, each, strict=True))  # type: ignore[arg-type]
        return results


def _can_be_of_one_item(error: BackendError) -> bool:
    """Return whether a single item of a batch can be the cause of an error."""
    if isinstance(error, BackendUnavailable):
        return False
    return not isinstance(error, HttpError) or error.status in (*_REFUSALS, 200)
