"""Batches of the requests of several connections, for models."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rag_rewards.errors import is_control_flow
from rag_rewards.server.admission import Admission, result_of
from rag_rewards.server.logs import current_request_id, set_request_id
from rag_rewards.server.telemetry import Telemetry

MAX_LOGGED_IDS = 8
"""Number of requests of a batch whose ids are in the log."""

J = TypeVar("J")
R = TypeVar("R")


@dataclass(eq=False)
class _Waiting(Generic[J, R]):
    """The job of one request, and the place of its result.

    rows   number of its rows
    since  time of arrival
    request_id, trace  id and trace context of the request
    is_gone  whether the request does not wait for the result
    """

    job: J
    rows: int
    since: float
    answer: asyncio.Future[R | BaseException]
    request_id: str
    trace: Any
    is_gone: bool = False


class Batcher(Generic[J, R]):
    """Calls a function with the jobs of several requests at once.

    If the call fails, it is repeated for each job, so that a request does not fail because of
    another one. A cancelled request is removed from the queue.

    call       returns the result of each job, in order
    admission  counts the rows that wait
    telemetry  records the traces of batches
    rows       maximum number of rows in a batch of several requests
    wait       seconds that a request waits for others; it also waits for running batches
    in_flight  maximum number of batches that run at the same time
    """

    def __init__(
        self,
        call: Callable[[Sequence[J]], Awaitable[Sequence[R]]],
        admission: Admission,
        telemetry: Telemetry,
        *,
        rows: int,
        wait: float = 0.0,
        in_flight: int = 1,
    ) -> None:
        self._call, self._admission, self._telemetry = call, admission, telemetry
        self._rows, self._wait, self._in_flight = rows, wait, in_flight
        self.waiting = 0
        """Number of rows in the queue."""
        self._queue: deque[_Waiting[J, R]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, job: J, rows: int) -> R:
        """Return the result of a job, or raise its error. Raises 503 if too many rows wait."""
        self._admission.check()
        loop = asyncio.get_running_loop()
        waiting: _Waiting[J, R] = _Waiting(
            job,
            rows,
            loop.time(),
            loop.create_future(),
            current_request_id(),
            self._telemetry.tracing.current(),
        )
        self._queue.append(waiting)
        self._count(rows)
        self._start_batches()
        result = await result_of(waiting.answer, lambda: self._remove(waiting))
        if isinstance(result, BaseException):
            raise result
        return result

    def _count(self, rows: int) -> None:
        self.waiting += rows
        self._admission.waiting += rows

    def _remove(self, waiting: _Waiting[J, R]) -> bool:
        """Remove a request from the queue; return False if its batch has begun."""
        waiting.is_gone = True
        if waiting not in self._queue:
            return False
        self._queue.remove(waiting)
        self._count(-waiting.rows)
        return True

    def _start_batches(self) -> None:
        """Start batches that are full or have waited long enough, up to `in_flight` of them."""
        loop = asyncio.get_running_loop()
        while self._queue and len(self._running) < self._in_flight:
            left = self._queue[0].since + self._wait - loop.time()
            if left > 0 and self.waiting < self._rows:
                if self._timer is None:
                    self._timer = loop.call_later(left, self._on_timer)
                return
            task = loop.create_task(self._run(self._next_batch()))
            self._running.add(task)
            task.add_done_callback(self._on_end)

    def _on_timer(self) -> None:
        self._timer = None
        self._start_batches()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start_batches()

    def _next_batch(self) -> list[_Waiting[J, R]]:
        """Remove the requests of the next batch from the queue and return them."""
        batch: list[_Waiting[J, R]] = []
        rows = 0
        while self._queue and (not batch or rows + self._queue[0].rows <= self._rows):
            batch.append(self._queue.popleft())
            rows += batch[-1].rows
        self._count(-rows)
        return batch

    async def _run(self, batch: Sequence[_Waiting[J, R]]) -> None:
        rows = sum(waiting.rows for waiting in batch)
        set_request_id(",".join(waiting.request_id for waiting in batch[:MAX_LOGGED_IDS]))
        try:
            with self._telemetry.tracing.batch([each.trace for each in batch], rows):
                await self._answer(batch)
        finally:  # after an exception, these requests would wait for ever
            for waiting in batch:
                waiting.answer.cancel()

    async def _answer(self, batch: Sequence[_Waiting[J, R]]) -> None:
        try:
            results = await self._call([waiting.job for waiting in batch])
        except BaseException as error:
            if is_control_flow(error):
                raise
            if len(batch) == 1:
                batch[0].answer.set_result(error)
                return
            for waiting in batch:
                if not waiting.is_gone:
                    await self._answer([waiting])
        else:
            for waiting, result in zip(batch, results, strict=True):
                waiting.answer.set_result(result)
