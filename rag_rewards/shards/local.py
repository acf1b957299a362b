"""The executor with processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait

import msgspec

from rag_rewards.io.worker_pool import WorkerPool
from rag_rewards.io.worker_process import ScorerArguments, answer_messages
from rag_rewards.scorer import Scorer
from rag_rewards.shards.answer import ShardAnswer, answer_task
from rag_rewards.shards.score import Part, ShardJob, ShardTask


class _Arguments(msgspec.Struct, frozen=True):
    scorer: ScorerArguments
    job: ShardJob


class LocalExecutor:
    """Scores shards in processes of this machine. See `Executor`.

    Raises UsageError when the scorer has models, or a recipe that is not plain data.
    """

    def __init__(self, scorer: Scorer, job: ShardJob, workers: int) -> None:
        arguments = _Arguments(ScorerArguments.of(scorer), job)
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
        head, _ = self._pool.ask(task.shard.lines, task)
        return msgspec.msgpack.decode(head, type=ShardAnswer).result()

    def close(self) -> None:
        self._pool.close()


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
