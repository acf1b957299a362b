"""Batches of the requests of several connections, for recipes that call models."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from rag_rewards.errors import BackendError, RolloutError, describe, is_control_flow
from rag_rewards.groups import Groups
from rag_rewards.rollout import Rollout, ScoreOrError
from rag_rewards.scorer import Scorer
from rag_rewards.server.request_ids import current_request_id, set_request_id
from rag_rewards.server.telemetry import Telemetry, log

INLINE_BYTES = 1 << 16
"""Size up to which rules score a request directly. Larger requests are scored in a thread, so that
they do not block other connections."""

MODEL_BATCH_BYTES = 1 << 20
"""Size of the large requests of a batch from which a recipe with models is scored in a thread."""

THREADS = 4
"""Number of threads that score large requests. After the deadline of a request, its thread stops
before the next group."""

MAX_LOGGED_IDS = 8
"""Number of requests of a batch whose ids are in the log."""

T = TypeVar("T")


class Workers:
    """The threads of large requests, and the size of all requests that wait or are scored.

    The size includes requests whose client no longer waits, until their thread or batch ends.
    """

    def __init__(self) -> None:
        self.pending_bytes = 0
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, "scoring")

    def add_pending(self, size: int) -> None:
        """Add the size of a request; remove it if the number is negative."""
        with self._lock:
            self.pending_bytes += size

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Return the result of `work`, which runs in a thread for a request of this size."""
        self.add_pending(size)
        future = self._threads.submit(copy_context().run, work)
        future.add_done_callback(lambda _: self.add_pending(-size))
        return await asyncio.wrap_future(future)  # cancels a request that waits for a thread


class Stopped(Exception):
    """A request whose client does not wait for its scores."""


@dataclass(eq=False)
class Waiting:
    """The rollouts of one request that wait for their scores.

    since  time of arrival
    size   size of the request, in bytes
    request_id, trace  id and trace context of the request
    """

    rollouts: Sequence[Rollout]
    groups: Groups
    answer: asyncio.Future[list[ScoreOrError]]
    since: float
    size: int
    request_id: str
    trace: Any


class Batcher:
    """Scores the rollouts of requests, in common batches if the recipe calls models.

    wait       seconds that a request waits for others; it also waits for running batches
    rows       maximum number of rollouts in a batch of several requests
    in_flight  maximum number of batches that run at the same time
    workers    the threads of large requests

    Recipes without models are scored directly.
    """

    def __init__(
        self,
        scorer: Scorer,
        telemetry: Telemetry,
        *,
        wait: float = 0.005,
        rows: int = 256,
        in_flight: int = 1,
        workers: Workers | None = None,
    ) -> None:
        self.scorer, self.telemetry = scorer, telemetry
        self.wait, self.rows, self.in_flight = wait, rows, in_flight
        self.waiting = 0
        self.workers = workers or Workers()
        self._queue: deque[Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def score(
        self, rollouts: Sequence[Rollout], groups: Groups, size: int = 0
    ) -> list[ScoreOrError]:
        """Return a score or an error for each rollout; `size` is the request's size in bytes.

        An exception of the whole batch becomes the error of each rollout. A cancelled request is
        removed from the queue.
        """
        try:
            if self.scorer.has_models:
                results = await self._batched(rollouts, groups, size)
            elif size <= INLINE_BYTES:
                results = self.scorer.score_each(rollouts, groups)
            else:
                stop = threading.Event()
                try:
                    results = await self.workers.run(
                        size, lambda: self._score_groups(rollouts, groups, stop)
                    )
                finally:
                    stop.set()
        except BaseException as error:
            if is_control_flow(error):
                raise
            results = [_failure(error)] * len(rollouts)
        self.telemetry.record(results)
        return results

    def _score_groups(
        self, rollouts: Sequence[Rollout], groups: Groups, stop: threading.Event
    ) -> list[ScoreOrError]:
        """Score one group after the other, until all are scored or `stop` is set."""
        results: list[Any] = [None] * len(rollouts)
        for group in groups:
            if stop.is_set():
                raise Stopped
            members = [rollouts[i] for i in group]
            scores = self.scorer.score_each(members, [range(len(members))])
            for i, score in zip(group, scores, strict=True):
                results[i] = score
        return results

    async def _batched(
        self, rollouts: Sequence[Rollout], groups: Groups, size: int
    ) -> list[ScoreOrError]:
        loop = asyncio.get_running_loop()
        waiting = Waiting(
            rollouts,
            groups,
            loop.create_future(),
            loop.time(),
            size,
            current_request_id(),
            self.telemetry.tracing.current(),
        )
        self.workers.add_pending(size)
        self._queue.append(waiting)
        self._count(len(rollouts))
        self._start_batches()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if waiting in self._queue:
                self._queue.remove(waiting)
                self._count(-len(rollouts))
                self.workers.add_pending(-size)
            raise

    def _count(self, change: int) -> None:
        self.waiting += change
        self.telemetry.queue.set(self.waiting)

    def _start_batches(self) -> None:
        """Start batches that are full or have waited long enough, up to `in_flight` of them."""
        loop = asyncio.get_running_loop()
        while self._queue and len(self._running) < self.in_flight:
            left = self._queue[0].since + self.wait - loop.time()
            if left > 0 and self.waiting < self.rows:
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

    def _next_batch(self) -> list[Waiting]:
        """Remove the requests of the next batch from the queue and return them."""
        batch: list[Waiting] = []
        size = 0
        while self._queue and (not batch or size + len(self._queue[0].rollouts) <= self.rows):
            waiting = self._queue.popleft()
            self._count(-len(waiting.rollouts))
            batch.append(waiting)
            size += len(waiting.rollouts)
        return batch

    async def _run(self, batch: Sequence[Waiting]) -> None:
        rollouts: list[Rollout] = []
        groups: list[list[int]] = []
        for waiting in batch:
            groups += [[len(rollouts) + i for i in group] for group in waiting.groups]
            rollouts += waiting.rollouts
        size = sum(waiting.size for waiting in batch)
        set_request_id(",".join(waiting.request_id for waiting in batch[:MAX_LOGGED_IDS]))
        try:
            with self.telemetry.tracing.batch([each.trace for each in batch], len(rollouts)):
                results = await self._score(rollouts, groups, size)
        except BaseException as error:
            if is_control_flow(error):  # otherwise these requests would wait for ever
                for waiting in batch:
                    waiting.answer.cancel()
                raise
            results = [_failure(error)] * len(rollouts)
        finally:
            self.workers.add_pending(-size)
        at = 0
        for waiting in batch:
            end = at + len(waiting.rollouts)
            if not waiting.answer.done():
                waiting.answer.set_result(results[at:end])
            at = end

    async def _score(
        self, rollouts: Sequence[Rollout], groups: Groups, size: int
    ) -> list[ScoreOrError]:
        """Score a batch; in a thread if reading its text would block other connections."""
        if size < MODEL_BATCH_BYTES:
            return await self.scorer.score_each_async(rollouts, groups)
        return await self.workers.run(0, partial(self.scorer.score_each, rollouts, groups))


def _failure(error: BaseException) -> RolloutError:
    """Return the error of each rollout of a batch that failed as a whole."""
    if isinstance(error, RolloutError):
        return error
    log.exception("scoring failed", exc_info=error)
    return BackendError(describe(error))
