"""Requests of many connections, gathered into batches before a model sees them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rag_rewards.blueprints import Scored
from rag_rewards.grading import Grader
from rag_rewards.rollout import Rollout
from rag_rewards.server.telemetry import Telemetry

Groups = Sequence[Sequence[int]]

INLINE_BYTES = 1 << 16
"""Text up to this size is scored by rules at once; more of it in a thread, so that one long
response does not hold up the other connections."""


@dataclass
class Waiting:
    """Rollouts of one request, and whoever waits for their scores."""

    rollouts: Sequence[Rollout]
    groups: Groups
    answer: asyncio.Future[list[Scored]]


class Batcher:
    """Scores the rollouts of requests, together where a model is asked.

    A request waits up to `wait` seconds for others; while a batch is with the models, those that
    come gather into the next one. `rows` bounds a batch, `in_flight` how many are with the
    models at a time. Rules are scored at once.
    """

    def __init__(
        self,
        grader: Grader,
        telemetry: Telemetry,
        *,
        wait: float = 0.005,
        rows: int = 256,
        in_flight: int = 1,
    ) -> None:
        self.grader, self.telemetry = grader, telemetry
        self.wait, self.rows, self.in_flight = wait, rows, in_flight
        self._queue: deque[Waiting] = deque()
        self._waiting_rows = 0
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def score(self, rollouts: Sequence[Rollout], groups: Groups) -> list[Scored]:
        """A score or an error for each rollout. Who is cancelled leaves the queue."""
        if not self.grader.asks:
            results = await self._by_rules(rollouts, groups)
        else:
            results = await self._with_others(rollouts, groups)
        self.telemetry.told(results)
        return results

    async def _by_rules(self, rollouts: Sequence[Rollout], groups: Groups) -> list[Scored]:
        size = sum(len(r.response) if isinstance(r.response, str) else 1024 for r in rollouts)
        if size <= INLINE_BYTES:
            return self.grader.score_each(rollouts, groups)
        return await asyncio.to_thread(self.grader.score_each, rollouts, groups)

    async def _with_others(self, rollouts: Sequence[Rollout], groups: Groups) -> list[Scored]:
        answer: asyncio.Future[list[Scored]] = asyncio.get_running_loop().create_future()
        self._queue.append(Waiting(rollouts, groups, answer))
        self._count(len(rollouts))
        self._wake()
        return await answer

    def _count(self, change: int) -> None:
        self._waiting_rows += change
        self.telemetry.queue.set(self._waiting_rows)

    def _wake(self) -> None:
        """Start a batch when it is full, or when its first request has waited long enough."""
        if not self._queue or len(self._running) >= self.in_flight:
            return
        if self._waiting_rows >= self.rows:
            self._start()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.wait, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = self._taken()
        if batch:
            task = asyncio.get_running_loop().create_task(self._run(batch))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if self._queue and len(self._running) < self.in_flight:
            self._start()  # they waited while the batch was with the models

    def _taken(self) -> list[Waiting]:
        """Requests for one batch, without those that nobody waits for any more."""
        batch: list[Waiting] = []
        size = 0
        while self._queue and (not batch or size + len(self._queue[0].rollouts) <= self.rows):
            waiting = self._queue.popleft()
            self._count(-len(waiting.rollouts))
            if not waiting.answer.done():
                batch.append(waiting)
                size += len(waiting.rollouts)
        return batch

    async def _run(self, batch: Sequence[Waiting]) -> None:
        rollouts: list[Rollout] = []
        groups: list[list[int]] = []
        for waiting in batch:
            groups += [[len(rollouts) + i for i in group] for group in waiting.groups]
            rollouts += waiting.rollouts
        try:
            results = await self.grader.score_each_async(rollouts, groups)
        except Exception as error:
            for waiting in batch:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
            return
        at = 0
        for waiting in batch:
            end = at + len(waiting.rollouts)
            if not waiting.answer.done():
                waiting.answer.set_result(results[at:end])
            at = end
