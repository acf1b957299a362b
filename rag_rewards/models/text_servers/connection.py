"""The connection to the servers of one model of texts: limits, key, description and batches."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.models.endpoints import Limits, endpoints
from rag_rewards.models.health import BackendUnavailable
from rag_rewards.models.http import Place, Servers
from rag_rewards.models.http_responses import HttpError
from rag_rewards.models.text_servers.description import PATHS, Description

T = TypeVar("T")
V = TypeVar("V")
_REFUSALS = (400, 413, 422, 424)
"""Statuses of a request that can succeed without one of its texts."""
LIMITS = Limits(timeout=60.0, deadline=600.0, concurrency=4, batch=16)
"""Limits of one process. Eight processes together send at most the 512 texts at a time that
text-embeddings-inference accepts by default."""


@dataclass
class Connection:
    """One or several servers of one model.

    name     beginning of messages about the servers
    servers  the servers
    """

    name: str
    servers: Servers
    _description: Description | None = field(default=None, init=False)

    @classmethod
    def of(
        cls,
        name: str,
        url: str | Sequence[str],
        api_key: str | None,
        key_variable: str,
        limits: Limits | None,
    ) -> Connection:
        """Return a connection. UsageError for an invalid URL or key."""
        key = api_key if api_key is not None else os.environ.get(key_variable, "").strip()
        if not (key.isascii() and (not key or key.isprintable())):
            raise UsageError(f"{key_variable} must contain printable ASCII characters only")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return cls(name, Servers(name, endpoints(url), limits or LIMITS, headers))

    def description(self) -> Description:
        """Return what the first server says about its model, requested once."""
        if self._description is None:
            self._description = self._checked(self.servers.get_sync(PATHS, Description))
        return self._description

    async def describe(self) -> Description:
        """Return the same as `description`, for callers with an event loop."""
        if self._description is None:
            async with self.servers.session() as session, session.place(1) as place:
                self._description = self._checked(await place.get(PATHS, Description))
        return self._description

    def _checked(self, description: Description) -> Description:
        if description.api is None:
            raise self.error(
                "is neither `rag-rewards serve` nor text-embeddings-inference nor vLLM"
            )
        return description

    def error(self, reason: str) -> BackendError:
        """Return an error about the servers."""
        urls = ", ".join(endpoint.url for endpoint in self.servers.endpoints)
        return BackendError(f"{self.name}: {urls} {reason}")

    async def in_batches(
        self,
        items: Sequence[T],
        size: int,
        length: Callable[[T], int],
        work: Callable[[Sequence[T], Place], Awaitable[Sequence[V]]],
    ) -> dict[T, V | Exception]:
        """Return the result or the error of each distinct item.

        Items of similar length are in one batch. If a batch is refused, its halves are sent, so
        that an item that cannot be processed does not affect the other items.
        """
        distinct = sorted(dict.fromkeys(items), key=length)
        size = max(min(size, self.servers.limits.batch), 1)
        batches = [distinct[at : at + size] for at in range(0, len(distinct), size)]

        async def isolated(batch: Sequence[T], place: Place) -> list[V | Exception]:
            try:
                values = await work(batch, place)
                if len(values) != len(batch):
                    raise self.error(f"returned {len(values)} results for {len(batch)} texts")
                return list(values)
            except BackendError as error:
                if len(batch) == 1 or not _can_be_of_one_item(error):
                    return [error] * len(batch)
            middle = len(batch) // 2
            first = await isolated(batch[:middle], place)
            return first + await isolated(batch[middle:], place)

        answers = await self.servers.map(batches, lambda batch: sum(map(length, batch)), isolated)
        results: dict[T, V | Exception] = {}
        for batch, values in zip(batches, answers, strict=True):
            for i, item in enumerate(batch):
                results[item] = values if isinstance(values, Exception) else values[i]
        return results


def _can_be_of_one_item(error: BackendError) -> bool:
    """Return whether a single item of a batch can be the cause of an error."""
    if isinstance(error, BackendUnavailable):
        return False
    return not isinstance(error, HttpError) or error.status in _REFUSALS


def probability(value: float, connection: Connection) -> float:
    """Return a probability; rounding errors are removed. BackendError for any other number."""
    if not -1e-4 <= value <= 1 + 1e-4:
        raise connection.error(
            f"returned {value:g}, which is not a probability: the model must have no activation "
            "other than softmax or sigmoid"
        )
    return min(max(value, 0.0), 1.0)
