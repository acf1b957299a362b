"""Scoring of shards in processes of a Ray cluster.

Each worker is an actor that reads its shards itself and writes part files. Only descriptions of
shards and records pass through Ray, never rows. Ray starts an actor again that ends, also on
another node. Its shards are then scored again; their part files are equal each time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from rag_rewards.errors import BackendError, UsageError, describe
from rag_rewards.files.storage import is_remote
from rag_rewards.files.version import FileVersion
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.options import ScoreOptions
from rag_rewards.scoring.ray_cluster import (
    RayOptions,
    absolute_models,
    absolute_path,
    absolute_recipe,
    ray_cluster,
)
from rag_rewards.scoring.shard import Part, ShardJob, ShardTask
from rag_rewards.scoring.workers import ScorerArguments, ShardWorker

log = logging.getLogger("rag_rewards")

ATTEMPTS = 4
"""Number of processes that try to score one shard before the run ends."""
TASKS_PER_WORKER = 2
"""Number of open tasks of a worker, so that no worker waits for its next one."""
REPORT_SECONDS = 30.0
"""Time after which a run without a scored shard reports that it waits."""
RESTART_SECONDS = 120.0
"""Time in which a worker that has ended must answer again."""
VISIBLE_SECONDS = 10.0
"""Time until a file that another node has written is visible in a shared folder."""


class RayWorker(ShardWorker):
    """A process of the cluster that scores shards with its own scorer and models."""

    def score(self, job: ShardJob, task: ShardTask) -> Part:
        """Score a shard to part files. Raises UsageError if this node cannot use the files."""
        try:
            for file in {job.files[0], job.files[-1]}:
                file.check()
            if not is_remote(job.folder) and not os.path.isdir(job.folder):
                raise UsageError(f"there is no folder {job.folder}")
        except UsageError as error:
            raise UsageError(
                f"a worker on the node {node_address()} cannot use the files of the run "
                f"({error}): with Ray, all nodes need the input and the folder of the output, on a "
                "shared file system or in an object store"
            ) from None
        return super().score(job, task)


def node_address() -> str:
    """Return the address of this node of the cluster."""
    import ray.util

    return str(ray.util.get_node_ip_address())


class _Restart(msgspec.Struct, frozen=True):
    """A worker that ended at a shard, and the time until which it must answer again."""

    worker: Any
    task: ShardTask
    attempt: int
    end: float


class RayWorkers:
    """Actors of a Ray cluster that score shards.

    A shard whose worker or node ends is scored again, in `ATTEMPTS` processes in all. Raises
    UsageError when a worker cannot load the scorer, or cannot use the files of the run.
    """

    def __init__(
        self, ray: Any, arguments: ScorerArguments, workers: int, options: RayOptions
    ) -> None:
        self._ray = ray
        self._resources = options.resources
        actor = ray.remote(RayWorker).options(
            max_restarts=-1, max_task_retries=ATTEMPTS - 1, **options.resources
        )
        self._workers = [actor.remote(arguments) for _ in range(workers)]
        self._has_answered = False
        self._job: ShardJob | None = None
        self._shared_job: Any = None

    def signature(self) -> str:
        """Return the signature of the workers' scorer."""
        reference = self._wait_for([self._workers[0].signature.remote()])
        try:
            return str(self._result(reference))
        except self._ray.exceptions.RayError as error:
            raise self._ended("their start", error) from None

    def begin(self, job: ShardJob) -> None:
        """Start a run. All paths become absolute, since each worker has its own folder."""
        files = [msgspec.structs.replace(each, path=absolute_path(each.path)) for each in job.files]
        self._open: dict[Any, tuple[Any, ShardTask, int]] = {}
        self._restarts: dict[Any, _Restart] = {}
        self._job = msgspec.structs.replace(job, files=files, folder=absolute_path(job.folder))
        self._shared_job = self._ray.put(self._job)

    def run(self, tasks: Iterable[ShardTask]) -> Iterator[Part]:
        """Score shards. See `ScoreShards`. Raises BackendError when workers end repeatedly."""
        free = self._workers * TASKS_PER_WORKER
        for task in tasks:
            self._submit(free.pop(0), task, 1)
            while not free:
                yield from self._next_parts(free)
        while self._open or self._restarts:
            yield from self._next_parts(free)

    def _submit(self, worker: Any, task: ShardTask, attempt: int) -> None:
        reference = worker.score.options(max_task_retries=0).remote(self._shared_job, task)
        self._open[reference] = worker, task, attempt

    def _next_parts(self, free: list[Any]) -> Iterator[Part]:
        """Wait for an answer of a worker, and yield the part if it is one."""
        reference = self._wait_for([*self._open, *self._restarts])
        if reference in self._restarts:
            self._continue(self._restarts.pop(reference), reference)
            return
        worker, task, attempt = self._open.pop(reference)
        try:
            part = self._result(reference)
        except self._ray.exceptions.RayError as error:
            if attempt == ATTEMPTS:
                raise self._ended(task.shard.lines, error) from None
            self._restart(_Restart(worker, task, attempt, time.monotonic() + RESTART_SECONDS))
            return
        free.append(worker)
        self._wait_until_visible(part)
        yield part

    def _restart(self, restart: _Restart) -> None:
        """Ask a worker that has ended for an answer, which it gives when it runs again."""
        self._restarts[restart.worker.signature.remote()] = restart

    def _continue(self, restart: _Restart, reference: Any) -> None:
        """Score the shard of a worker again that runs again, or ask the worker again.

        Its calls fail until Ray notices that its node has ended.
        """
        try:
            self._result(reference)
        except self._ray.exceptions.RayError as error:
            if time.monotonic() > restart.end:
                raise self._ended(restart.task.shard.lines, error) from None
            time.sleep(1)
            self._restart(restart)
        else:
            self._submit(restart.worker, restart.task, restart.attempt + 1)

    def _wait_for(self, references: list[Any]) -> Any:
        """Wait until one of the answers exists, and return its reference."""
        while True:
            done, _ = self._ray.wait(references, num_returns=1, timeout=REPORT_SECONDS)
            if done:
                return done[0]
            if not self._has_answered:
                needs = ", ".join(f"{name} {value:g}" for name, value in self._resources.items())
                log.warning("waiting for workers to start and to load models (each: %s)", needs)

    def _result(self, reference: Any) -> Any:
        """Return an answer. Raises the error of the worker, or RayError if it has ended."""
        try:
            result = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        self._has_answered = True
        return result

    def _ended(self, place: str, error: Exception) -> BackendError:
        return BackendError(f"{ATTEMPTS} workers ended at {place}: {describe(error)[:500]}")

    def _wait_until_visible(self, part: Part) -> None:
        """Raise UsageError if this process does not see a file that a worker has written."""
        if self._job is None:
            raise ValueError("the run has not begun")
        end = time.monotonic() + VISIBLE_SECONDS
        while FileVersion.of(self._job.rows_path(part.shard.index)) is None:
            if time.monotonic() > end:
                raise UsageError(
                    f"a worker does not write to the same folder {self._job.folder} as this "
                    "process: with Ray, all nodes need the folder of the output, on a shared file "
                    "system or in an object store"
                )
            time.sleep(0.1)

    def close(self) -> None:
        """End all workers, also while they score."""
        for worker in self._workers:
            with contextlib.suppress(Exception):  # it has ended
                self._ray.kill(worker)


@contextlib.contextmanager
def ray_workers(scorer: Scorer, options: ScoreOptions) -> Iterator[RayWorkers]:
    """Connect to a Ray cluster and start its workers for the time of the block."""
    arguments = ScorerArguments.of(scorer)
    arguments = msgspec.structs.replace(
        arguments,
        recipe=absolute_recipe(arguments.recipe),
        models=absolute_models(options.models),
    )
    with ray_cluster(options.ray.ray_address) as ray:
        workers = RayWorkers(ray, arguments, options.workers, options.ray)
        with contextlib.closing(workers):
            yield workers
