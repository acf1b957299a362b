"""Scoring of shards in other processes, of this machine or of a cluster."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cached_property
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import ModuleType

import msgspec

from rag_rewards.errors import BackendError, OptionError, RagRewardsError, UsageError
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.ray_cluster import KEEP_MEMORY, environment
from rag_rewards.scoring.shard import Part, ShardJob, ShardTask, part_files, score_shard

ATTEMPTS = 3
"""Number of processes that try to score one shard by itself before the run ends."""

ScoreShards = Callable[[Iterable[ShardTask]], Iterator[Part]]
"""A function that yields the record of each shard when its rows are complete, in any order.

It takes a task only when a process is about to be free, so that the number of open tasks is
bounded, and may be called again while an earlier call is still going on."""


class ScorerArguments(msgspec.Struct, frozen=True):
    """What a worker needs to load the scorer of its parent."""

    recipe: RecipeSpec
    keep_evidence: bool
    for_parquet: bool
    models: ModelOptions = ModelOptions()

    @classmethod
    def of(cls, scorer: Scorer) -> ScorerArguments:
        """Return the arguments of a scorer.

        Raises UsageError for a recipe that is not plain data.
        """
        if scorer.spec is None:
            raise OptionError(
                "{workers} must be 1 for a recipe that is given as an object: worker processes "
                "load it by its name, or by module:name"
            )
        return cls(scorer.spec, scorer.keep_evidence, scorer.for_parquet)

    def load(self) -> Scorer:
        """Load the scorer."""
        return Scorer.load(
            self.recipe,
            models=self.models,
            keep_evidence=self.keep_evidence,
            for_parquet=self.for_parquet,
        )


class ShardWorker:
    """Scores shards to part files with a scorer of its own, which its first call loads."""

    def __init__(self, arguments: ScorerArguments) -> None:
        self._arguments = arguments

    @cached_property
    def _scorer(self) -> Scorer:
        return self._arguments.load()

    def signature(self) -> str:
        """Return the signature of the scorer."""
        with _plain_errors():
            return self._scorer.signature

    def score(self, job: ShardJob, task: ShardTask) -> Part:
        """Score a shard to part files, and return its record."""
        with _plain_errors(), part_files(job, task.shard.index) as files:
            return score_shard(self._scorer, job, task, files)


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise errors of this package in a form that every process can decode."""
    try:
        yield
    except RagRewardsError as error:
        raise UsageError(str(error)) from None


class LocalWorkers:
    """Processes of this machine that score the shards of a job.

    If a process ends, all others are started again. The shards that they were scoring are then
    scored one at a time, so that the shard that ends a process is known.

    Workers are new interpreters. They receive plain data and no row, read and write files
    themselves, and end with their parent, also in the middle of a shard.

    Raises UsageError for a recipe that is not plain data.
    """

    def __init__(self, scorer: Scorer, job: ShardJob, workers: int) -> None:
        self._arguments = ScorerArguments.of(scorer)
        self._job, self._workers = job, workers
        # A worker ends when the other end of this pipe is closed, which the end of the parent does.
        self._lifeline, self._end = get_context("spawn").Pipe(duplex=False)
        self._pool = self._new_pool()

    def run(self, tasks: Iterable[ShardTask]) -> Iterator[Part]:
        """Score shards. See `ScoreShards`.

        Raises BackendError when `ATTEMPTS` processes have ended at one shard, and when the system
        cannot start a process.
        """
        open_tasks: dict[Future[Part], ShardTask] = {}
        for task in tasks:
            open_tasks[self._submit(task)] = task
            if len(open_tasks) > self._workers:  # one more, so that no worker waits for its next
                yield from self._next_parts(open_tasks)
        while open_tasks:
            yield from self._next_parts(open_tasks)

    def _next_parts(self, open_tasks: dict[Future[Part], ShardTask]) -> Iterator[Part]:
        """Wait until a shard is scored, and yield the parts that are complete."""
        done, _ = wait(open_tasks, return_when=FIRST_COMPLETED)
        for future in done:
            task = open_tasks.pop(future)
            try:
                part = future.result()
            except BrokenProcessPool:
                part = self._score_alone(task)
            yield part

    def _score_alone(self, task: ShardTask) -> Part:
        """Score a shard at which a process may have ended."""
        for _ in range(ATTEMPTS):
            with contextlib.suppress(BrokenProcessPool):
                return self._submit(task).result()
        raise BackendError(
            f"{ATTEMPTS} scoring workers ended at {task.shard.lines}: use fewer workers"
        )

    def _submit(self, task: ShardTask) -> Future[Part]:
        try:
            with contextlib.suppress(BrokenProcessPool):
                return self._started(task)
            # The pool waits for a process that started while the pool broke; `close` ends it.
            self._pool.shutdown(wait=False)
            self._pool = self._new_pool()
            return self._started(task)
        except OSError as error:
            raise BackendError(
                f"cannot start a scoring worker ({error.strerror}): use fewer workers"
            ) from None

    def _started(self, task: ShardTask) -> Future[Part]:
        """Submit a task, for which the pool may start a process."""
        # A worker imports neither the main module, which may be a script that scores files, nor
        # modules of the current folder.
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            with environment(_WORKER_ENVIRONMENT):
                return self._pool.submit(_score, task)
        except OSError as error:
            if error.errno is None:  # the pool broke during this call
                raise BrokenProcessPool from None
            raise
        finally:
            sys.modules["__main__"] = main

    def _new_pool(self) -> ProcessPoolExecutor:
        added = tuple(_WORKER_ENVIRONMENT.keys() - os.environ.keys())
        with environment(_WORKER_ENVIRONMENT):
            return ProcessPoolExecutor(
                self._workers,
                mp_context=get_context("spawn"),
                initializer=_start,
                initargs=(self._arguments, self._job, self._lifeline, added),
            )

    def close(self) -> None:
        """End all workers, also while they score."""
        self._end.close()
        self._pool.shutdown(cancel_futures=True)
        self._lifeline.close()


# --- the worker process --------------------------------------------------------------------------

_WORKER_ENVIRONMENT = KEEP_MEMORY | {
    "PYTHONSAFEPATH": "1",
    # The process that removes semaphores would warn when their owner is killed.
    "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning",
}
"""Variables that are set while a worker starts. The code of rewards does not see them."""


class _Worker:
    """The state of a worker process."""

    worker: ShardWorker
    job: ShardJob


def _start(
    arguments: ScorerArguments, job: ShardJob, lifeline: Connection, added: tuple[str, ...]
) -> None:
    """Initialize a worker process."""
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    if hasattr(os, "setsid"):
        os.setsid()  # an interrupt of the terminal reaches only the parent
    if sys.stdout is not None:  # what a reward prints goes to standard error
        sys.stdout.flush()
        target = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()
        os.dup2(target, sys.stdout.fileno())
    for name in added:
        os.environ.pop(name, None)
    _Worker.worker, _Worker.job = ShardWorker(arguments), job


def _end_with_parent(lifeline: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os._exit(0)


def _score(task: ShardTask) -> Part:
    return _Worker.worker.score(_Worker.job, task)
