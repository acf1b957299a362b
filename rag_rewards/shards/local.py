"""The executor with processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from queue import SimpleQueue

import msgspec

from rag_rewards.errors import BackendError
from rag_rewards.io.worker_process import ScorerArguments, WorkerProcess, answer_messages
from rag_rewards.scorer import Scorer
from rag_rewards.shards.answer import ShardAnswer, answer_task
from rag_rewards.shards.score import Part, ShardJob, ShardTask

ATTEMPTS = 3
"""Number of processes that try to score one shard before the run ends."""


class _Arguments(msgspec.Struct, frozen=True):
    scorer: ScorerArguments
    job: ShardJob


class LocalExecutor:
    """Scores shards in processes of this machine. See `Executor`.

    A shard whose process ends is scored again by a new process, `ATTEMPTS` times in all. Raises
    UsageError when the scorer has models, or a recipe that is not plain data.
    """

    def __init__(self, scorer: Scorer, job: ShardJob, workers: int) -> None:
        self._arguments = _Arguments(ScorerArguments.of(scorer), job)
        self._idle: SimpleQueue[WorkerProcess] = SimpleQueue()
        self._workers: set[WorkerProcess] = set()
        self._is_closed = False
        for _ in range(workers):
            self._idle.put(self._start())
        self._threads = ThreadPoolExecutor(workers)
        self._limit = workers + 1  # one task more, so that no worker waits for its next one

    def _start(self) -> WorkerProcess:
        worker = WorkerProcess(__name__, self._arguments)
        self._workers.add(worker)
        return worker

    def run(self, tasks: Iterable[ShardTask]) -> Iterator[Part]:
        open_tasks: set[Future[Part]] = set()
        for task in tasks:
            open_tasks.add(self._threads.submit(self._score, task))
            if len(open_tasks) >= self._limit:
                done, open_tasks = wait(open_tasks, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while open_tasks:
            done, open_tasks = wait(open_tasks, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)

    def _score(self, task: ShardTask) -> Part:
        exit_code = 0
        for _ in range(ATTEMPTS):
            worker = self._idle.get()
            if self._is_closed:
                self._idle.put(worker)
                break
            answer = worker.ask(task)
            if answer is not None:
                self._idle.put(worker)
                return msgspec.msgpack.decode(answer[0], type=ShardAnswer).result()
            exit_code = worker.exit_code()
            if self._is_closed:
                self._idle.put(worker)
                break
            self._replace(worker)
        raise BackendError(
            f"{ATTEMPTS} scoring workers ended (the last with exit code {exit_code}) at "
            f"{task.shard.lines}: use fewer workers"
        )

    def _replace(self, worker: WorkerProcess) -> None:
        self._workers.discard(worker)
        worker.close()
        self._idle.put(self._start())

    def close(self) -> None:
        self._is_closed = True
        for worker in list(self._workers):
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.kill()
            worker.close()


def main() -> None:
    """Score shards as a worker process."""
    answer_messages(_scoring)


def _scoring(encoded: bytes) -> Callable[[bytes, bytes], tuple[ShardAnswer, bytes]]:
    arguments = msgspec.msgpack.decode(encoded, type=_Arguments)
    scorer = arguments.scorer.load()

    def answer(head: bytes, _: bytes) -> tuple[ShardAnswer, bytes]:
        task = msgspec.msgpack.decode(head, type=ShardTask)
        return answer_task(scorer, arguments.job, task), b""

    return answer
