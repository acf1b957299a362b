"""Admission of requests: their memory, their deadline, and the threads of large ones.

A request is counted from the first byte of its body until its work has ended, also if its client
no longer waits.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from rag_rewards.server.options import MIB, ServerOptions
from rag_rewards.server.request_errors import RequestError, busy

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Handler = Callable[[bytes], Coroutine[Any, Any, bytes]]
T = TypeVar("T")

INLINE_BYTES = 1 << 16
"""Size up to which a request is read, and scored by rules, directly. Larger requests are read in a
thread, so that they do not block other connections."""

THREADS = 4
"""Number of threads of large requests. After the deadline of a request, its thread stops before the
next group."""


class ClientGone(Exception):
    """A client that disconnects before it gets a response."""


class Stopped(Exception):
    """The work of a request that has ended."""


class Admission:
    """Admits requests within the limits of a server.

    pending_bytes  size of the requests that are received, wait or are scored
    waiting        number of rollouts and pairs that wait for a model
    has_models     whether a small request can take more than a few milliseconds
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.pending_bytes = self.waiting = 0
        self.has_models = False
        self._threads = ThreadPoolExecutor(THREADS, "scoring")

    def check(self) -> None:
        """Raise 503 if the requests in memory exceed a limit."""
        if self.waiting > self.options.max_waiting:
            raise busy(f"{self.waiting:,} rollouts or pairs are waiting")
        if self.pending_bytes > self.options.max_pending:
            raise busy("other requests are being received or scored")

    async def answer(self, receive: Receive, handler: Handler) -> bytes:
        """Receive the body of a request, and return the result of its handler.

        Raises asyncio.TimeoutError at the deadline, and ClientGone if the client disconnects.
        """
        deadline = time.monotonic() + self.options.deadline
        request_bytes = _RequestBytes(self)
        try:
            body = await asyncio.wait_for(self._body(receive, request_bytes), self.options.deadline)
        except BaseException:
            request_bytes.remove()
            raise
        if len(body) <= INLINE_BYTES and not self.has_models:
            try:
                return await handler(body)  # takes less time than a disconnection
            finally:
                request_bytes.remove()
        work = asyncio.ensure_future(handler(body))
        work.add_done_callback(lambda _: request_bytes.remove())
        return await _until_disconnect(receive, work, deadline)

    async def _body(self, receive: Receive, request_bytes: _RequestBytes) -> bytes:
        """Return the body of a request. Raises 413 or 503 as soon as it exceeds a limit."""
        limit = int(self.options.max_body * MIB)
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            request_bytes.add(len(parts[-1]))
            try:
                if request_bytes.size > limit:
                    raise RequestError(413, "TooLarge", f"the body has more than {limit:,} bytes")
                self.check()
            except RequestError:
                request_bytes.remove()  # at once, so that its bytes refuse no other request
                raise
            if not message.get("more_body", False):
                return b"".join(parts)

    async def run(self, size: int, work: Callable[[Callable[[], None]], T]) -> T:
        """Return the result of `work`, which runs in a thread if it reads a large request.

        `work` calls its argument between its steps, which raises Stopped if the request has ended.
        """
        if size <= INLINE_BYTES:
            return work(_never_stop)
        ended = threading.Event()

        def check() -> None:
            if ended.is_set():
                raise Stopped

        def stop() -> bool:
            ended.set()
            return future.cancel()

        future = self._threads.submit(copy_context().run, work, check)
        return await result_of(asyncio.wrap_future(future), stop)


def _never_stop() -> None:
    """Continue: a small request ends within a few milliseconds."""


class _RequestBytes:
    """The size of one request among those that are counted."""

    def __init__(self, admission: Admission) -> None:
        self.size = 0
        self._admission = admission

    def add(self, size: int) -> None:
        self.size += size
        self._admission.pending_bytes += size

    def remove(self) -> None:
        self.add(-self.size)


async def result_of(future: asyncio.Future[T], stop: Callable[[], bool]) -> T:
    """Return the result of work that other requests may share or a thread does.

    If the caller is cancelled, `stop` is called. Unless it returns True, because the work had not
    begun, the caller waits for the end of the work, so that it is counted until then.
    """
    try:
        await asyncio.wait([future])
    except asyncio.CancelledError:
        if not stop():
            await asyncio.wait([future])
            _ = future.cancelled() or future.exception()  # asyncio logs errors that nobody reads
        raise
    return future.result()


async def _until_disconnect(
    receive: Receive, work: asyncio.Future[bytes], deadline: float
) -> bytes:
    """Return the result, unless the deadline passes or the client disconnects before."""
    disconnected = asyncio.ensure_future(_disconnected(receive))
    try:
        done, _ = await asyncio.wait(
            (work, disconnected),
            timeout=max(deadline - time.monotonic(), 0.0),
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        disconnected.cancel()
        work.cancel()  # also if this request is itself cancelled; ignored if it is done
    if work in done:
        return work.result()
    if done:
        raise ClientGone
    raise asyncio.TimeoutError


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
