"""The calls of a model on servers that are under way: what they share, and their tasks."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rag_rewards.models.addresses import Server

_T = TypeVar("_T")


def _times() -> dict[str, float]:
    return defaultdict(float)


@dataclass
class SharedState:
    """What the simultaneous calls on one event loop share.

    Times are those of the monotonic clock, by the URL of the server.

    slots    limit of simultaneous requests
    paused   times before which a server accepts no request, by its Retry-After
    causes   the failures that paused servers
    failed   times before which a server that failed receives no request if there is another server
    idle     HTTP clients without a request, each for one request at a time: the connection pool of
             a client with several connections searches all of them at each request
    """

    slots: asyncio.Semaphore
    paused: dict[str, float] = field(default_factory=_times)
    causes: dict[str, str] = field(default_factory=dict)
    failed: dict[str, float] = field(default_factory=_times)
    idle: list[Any] = field(default_factory=list)

    async def close(self) -> None:
        """Close the HTTP clients."""
        for connection in self.idle:
            await connection.aclose()


class PerLoop(Generic[_T]):
    """An object that simultaneous calls on one event loop share. The last of them closes it."""

    def __init__(self, create: Callable[[], _T], close: Callable[[_T], Awaitable[None]]) -> None:
        self._create, self._close = create, close
        self._objects: dict[asyncio.AbstractEventLoop, tuple[_T, int]] = {}

    @asynccontextmanager
    async def use(self) -> AsyncIterator[_T]:
        """Provide the object for one call."""
        loop = asyncio.get_running_loop()
        shared, calls = self._objects.get(loop) or (self._create(), 0)
        self._objects[loop] = shared, calls + 1
        try:
            yield shared
        finally:
            _, calls = self._objects.pop(loop)
            if calls > 1:
                self._objects[loop] = shared, calls - 1
            else:
                await self._close(shared)


@dataclass
class Call:
    """One call.

    number    its number for `Health`
    deadline  its deadline on the monotonic clock
    paused    as in `SharedState`, for times after the deadline, so that no other call waits for
              them
    """

    shared: SharedState
    number: int
    deadline: float
    paused: dict[str, float] = field(default_factory=_times)

    def pause(self, server: Server, seconds: float, cause: str) -> None:
        """Let no request be sent to a server for some time, because of the failure `cause`."""
        if seconds <= 0:
            return
        self.shared.causes[server.url] = cause
        until = time.monotonic() + seconds
        paused = self.shared.paused if until < self.deadline else self.paused
        paused[server.url] = max(paused[server.url], until)

    def paused_until(self, server: Server) -> float:
        """Return the time before which a server accepts no request."""
        return max(self.shared.paused[server.url], self.paused[server.url])

    async def run(self, work: Iterable[Awaitable[None]]) -> None:
        """Run tasks until all end, one raises an exception, or the deadline is over."""
        tasks = [asyncio.ensure_future(each) for each in work]
        left = None if self.deadline == math.inf else self.deadline - time.monotonic()
        try:
            await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
            ended = [task for task in tasks if task.done()]
        finally:
            self.deadline = -math.inf  # before Python 3.12, wait_for can lose a cancellation
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            task.result()  # raises unexpected exceptions, which are bugs


async def run_concurrently(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Return all results in order. The first exception cancels the rest and is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
