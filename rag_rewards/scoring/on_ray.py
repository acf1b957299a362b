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
        reference = self._workers[0].signature.remote()
        self._wait_for([reference])
        try:
            return str(self._result(reference))
        except self._ray.exceptions.RayError as error:
            raise self._ended("their start", error) from None

    def begin(self, job: ShardJob) -> None:
        """Start a run. All paths become absolute, since each worker has its own folder."""
        files = [msgspec.structs.replace(each, path=absolute_path(each.path)) for each in job.files]
        self._job = msgspec.structs.replace(job, files=files, folder=absolute_path(job.folder))
        self._shared_job = self._ray.put(self._job)

    def run(self, tasks: Iterable[ShardTask]) -> Iterator[Part]:
        """Score shards. See `ScoreShards`. Raises BackendError when workers end repeatedly."""
        free = self._workers * TASKS_PER_WORKER
        open_tasks: dict[Any, tuple[Any, ShardTask, int]] = {}
        for task in tasks:
            worker = free.pop(0)
            open_tasks[self._submit(worker, task)] = worker, task, 1
            if not free:
                yield from self._next_parts(open_tasks, free)
        while open_tasks:
            yield from self._next_parts(open_tasks, free)

    def _submit(self, worker: Any, task: ShardTask) -> Any:
        return worker.score.options(max_task_retries=0).remote(self._shared_job, task)

    def _next_parts(
        self, open_tasks: dict[Any, tuple[Any, ShardTask, int]], free: list[Any]
    ) -> Iterator[Part]:
        """Wait until a shard is scored, and yield the parts that are complete."""
        for reference in self._wait_for(list(open_tasks)):
            worker, task, attempt = open_tasks.pop(reference)
            try:
                part = self._result(reference)
            except self._ray.exceptions.RayError as error:
                if attempt == ATTEMPTS or not self._has_restarted(worker):
                    raise self._ended(task.shard.lines, error) from None
                open_tasks[self._submit(worker, task)] = worker, task, attempt + 1
                continue
            free.append(worker)
            self._wait_until_visible(part)
            yield part

    def _wait_for(self, references: list[Any]) -> list[Any]:
        """Wait until one of the answers exists, and return the references of those that do."""
        while True:
            done, _ = self._ray.wait(references, num_returns=1, timeout=REPORT_SECONDS)
            if done:
                return list(done)
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

    def _has_restarted(self, worker: Any) -> bool:
        """Wait until a worker answers again. Ray may notice the end of its node after a while."""
        end = time.monotonic() + RESTART_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._result(worker.signature.remote())
                return True
            time.sleep(1)
        return False

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
