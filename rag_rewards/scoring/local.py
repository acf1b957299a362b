"""The executor with processes of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait

import msgspec

from rag_rewards.scorer import Scorer
from rag_rewards.scoring.answer import ShardAnswer, answer_task, answer_with
from rag_rewards.scoring.held_part import HeldPart
from rag_rewards.scoring.positions import Positions
from rag_rewards.scoring.score import Part, ShardJob, ShardTask
from rag_rewards.scoring.worker_pool import WorkerPool
from rag_rewards.scoring.worker_process import ScorerArguments, WorkerProcess, answer_messages


class _Arguments(msgspec.Struct, frozen=True):
    scorer: ScorerArguments
    job: ShardJob


class _Write(msgspec.Struct, frozen=True, tag=True):
    """Write the shard that was scored: to the output from a position on; None for part files."""

    position: int | None


class _Score(msgspec.Struct, frozen=True, tag=True):
    """Score a shard: to part files, or, if the job has a partial output, until `_Write` follows."""

    task: ShardTask


class LocalExecutor:
    """Scores shards in processes of this machine. See `Executor`.

    positions  positions of rows in the output, if the job has a partial output

    Raises UsageError when the scorer has models, or a recipe that is not plain data.
    """

    def __init__(
        self, scorer: Scorer, job: ShardJob, workers: int, positions: Positions | None = None
    ) -> None:
        arguments = _Arguments(ScorerArguments.of(scorer), job)
        self._positions = positions
        self._pool = WorkerPool(__name__, arguments, workers)
        self._limit = workers + 1  # one task more, so that no worker waits for its next one

    def run(self, tasks: Iterable[ShardTask]) -> Iterator[Part]:
        open_tasks: set[Future[Part]] = set()
        for task in tasks:
            open_tasks.add(self._pool.submit(self._score, task))
            if len(open_tasks) >= self._limit:
                done, open_tasks = wait(open_tasks, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while open_tasks:
            done, open_tasks = wait(open_tasks, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)

    def _score(self, task: ShardTask) -> Part:
        def score(worker: WorkerProcess) -> Part:
            part = _answer(worker, _Score(task))
            if self._positions is not None:
                part = _answer(worker, _Write(self._positions.take(part)))
            return part

        return self._pool.use(task.shard.lines, score)

    def close(self) -> None:
        self._pool.close()


def _answer(worker: WorkerProcess, message: msgspec.Struct) -> Part:
    head, _ = worker.ask(message)
    return msgspec.msgpack.decode(head, type=ShardAnswer).result()


# --- the worker process ------------------------------------------------------------------------


def main() -> None:
    """Score shards as a worker process."""
    answer_messages(_scoring)


def _scoring(encoded: bytes) -> Callable[[bytes, bytes], tuple[ShardAnswer, bytes]]:
    arguments = msgspec.msgpack.decode(encoded, type=_Arguments)
    worker = _Worker(arguments.scorer.load(), arguments.job)

    def answer(head: bytes, _: bytes) -> tuple[ShardAnswer, bytes]:
        return worker.answer(msgspec.msgpack.decode(head, type=_Score | _Write)), b""

    return answer


class _Worker:
    """Scores shards, and keeps the last one until it is known where its rows belong."""

    def __init__(self, scorer: Scorer, job: ShardJob) -> None:
        self._scorer, self._job = scorer, job
        self._held: HeldPart | None = None

    def answer(self, message: _Score | _Write) -> ShardAnswer:
        """Return the record of a shard, or the message of an error."""
        if isinstance(message, _Write):
            return answer_with(self._job, lambda: self._write(message.position))
        if self._job.partial is None:
            return answer_task(self._scorer, self._job, message.task)
        return answer_with(self._job, lambda: self._hold(message.task))

    def _hold(self, task: ShardTask) -> Part:
        self._held = HeldPart(self._scorer, self._job, task)
        return self._held.part

    def _write(self, position: int | None) -> Part:
        held, self._held = self._held, None
        if held is None:
            raise ValueError("no shard was scored")
        with contextlib.closing(held):
            if position is None:
                held.write_to_files()
            else:
                held.write_to_output(position)
        return held.part
