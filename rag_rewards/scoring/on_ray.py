"""The executor with the processes of a Ray cluster.

Each worker is an actor that reads its shards itself and writes part files. Only descriptions of
shards and records pass through Ray, never rows.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rag_rewards.errors import BackendError, RagRewardsError, UsageError, describe
from rag_rewards.files.atomic import write_file
from rag_rewards.files.storage import join, read_file, remove_file
from rag_rewards.files.version import FileVersion
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.absolute_paths import absolute_models, absolute_path, absolute_recipe
from rag_rewards.scoring.answer import ShardAnswer, answer_task
from rag_rewards.scoring.ray_cluster import RayOptions, ray_cluster
from rag_rewards.scoring.score import Part, ShardJob, ShardTask
from rag_rewards.scoring.score_options import ScoreOptions
from rag_rewards.scoring.worker_process import ScorerArguments

log = logging.getLogger("rag_rewards")

ATTEMPTS = 4
"""Number of workers that try to score one shard before the run ends."""
TASKS_PER_WORKER = 2
"""Number of open tasks of a worker, so that no worker waits for its next one."""
REPORT_SECONDS = 30.0
"""Time after which a run that has no worker reports that it waits."""
VISIBLE_SECONDS = 10.0
"""Time until a file that another node has written is visible in a shared folder."""


class ShardWorker:
    """A process of the cluster that scores shards with its own scorer and models."""

    def __init__(self, arguments: bytes) -> None:
        self._fault = ""
        try:
            self._scorer: Scorer = msgspec.msgpack.decode(arguments, type=ScorerArguments).load()
        except RagRewardsError as error:
            self._fault = str(error)

    def signature(self) -> tuple[str, str]:
        """Return the signature of the scorer, or the reason why there is none."""
        try:
            return ("", self._fault) if self._fault else (self._scorer.signature, "")
        except RagRewardsError as error:
            return "", str(error)

    def begin(self, job: bytes, probe: str) -> tuple[str, str]:
        """Receive the job of a run and write a file to its folder.

        Returns the name of the file, or the reason why this process cannot work on the job.
        """
        self._job = msgspec.msgpack.decode(job, type=ShardJob)
        if self._fault:
            return "", self._fault
        name = f"{probe}-{secrets.token_hex(4)}"
        try:
            for file in {self._job.files[0], self._job.files[-1]}:
                file.check()
            write_file(join(self._job.folder, name), read_file(join(self._job.folder, probe)))
        except (RagRewardsError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return "", (
                f"a worker on the node {node_address()} cannot use the files of the run "
                f"({reason}): with Ray, all nodes need the input and the folder of the output, on "
                "a shared file system or in an object store"
            )
        return name, ""

    def score(self, task: bytes) -> bytes:
        """Score a shard to part files, and return the encoded answer."""
        shard = msgspec.msgpack.decode(task, type=ShardTask)
        return msgspec.msgpack.encode(answer_task(self._scorer, self._job, shard))


def node_address() -> str:
    """Return the address of this node of the cluster."""
    import ray.util

    return str(ray.util.get_node_ip_address())


@dataclass
class _Call:
    """One call of `run`: the records that it has not yielded yet, and its open tasks."""

    done: deque[Part] = field(default_factory=deque)
    open: int = 0


@dataclass
class _Attempt:
    task: ShardTask
    call: _Call
    number: int = 1
    worker: Any = None


class RayExecutor:
    """Scores shards in actors of a Ray cluster. See `Executor`.

    A shard whose worker or node ends is scored again by another worker, `ATTEMPTS` times in all,
    and a new worker takes the place of the lost one. Raises UsageError when a worker cannot load
    the scorer, or cannot use the files of the run.
    """

    def __init__(
        self, ray: Any, arguments: ScorerArguments, workers: int, options: RayOptions
    ) -> None:
        self._ray = ray
        actor = ray.remote(ShardWorker)
        self._actor = actor.options(max_restarts=0, **options.resources)
        self._arguments = msgspec.msgpack.encode(arguments)
        self._resources = options.resources
        self._new = [self._actor.remote(self._arguments) for _ in range(workers)]
        self._starting: dict[Any, Any] = {}
        """The workers that have not begun yet, by the reference of their answer."""
        self._open: dict[Any, _Attempt] = {}
        self._load: dict[Any, int] = {}
        """Number of open tasks of each worker that has begun."""
        self._retries: deque[_Attempt] = deque()
        self._failed_starts = 0
        self._job = b""
        self._folder = self._probe = ""

    def signature(self) -> str:
        """Return the signature of the workers' scorer.

        Raises BackendError when `ATTEMPTS` workers end at their start.
        """
        while True:
            worker = self._new.pop(0)
            reference = worker.signature.remote()
            self._new.append(worker)
            self._wait_for([reference])
            try:
                signature, fault = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                self._count_failed_start(error)
                self._kill(worker)
                self._new[-1] = self._actor.remote(self._arguments)
                continue
            if fault:
                raise UsageError(fault)
            self._failed_starts = 0
            return str(signature)

    def begin(self, job: ShardJob) -> None:
        """Start a run. All paths become absolute, since each worker has its own folder."""
        files = [msgspec.structs.replace(each, path=absolute_path(each.path)) for each in job.files]
        output = None if job.output is None else absolute_path(job.output)
        job = msgspec.structs.replace(
            job, files=files, folder=absolute_path(job.folder), output=output
        )
        self._job, self._folder = msgspec.msgpack.encode(job), job.folder
        self._probe = f"probe-{secrets.token_hex(8)}"
        write_file(join(self._folder, self._probe), self._probe.encode())
        for worker in self._new:
            self._begin(worker)
        self._new = []

    def _begin(self, worker: Any) -> None:
        self._starting[worker.begin.remote(self._job, self._probe)] = worker

    # --- tasks ---------------------------------------------------------------------------------

    def run(self, tasks: Iterable[ShardTask]) -> Iterator[Part]:
        call = _Call()
        waiting = iter(tasks)
        task = next(waiting, None)
        while True:
            while (worker := self._free_worker()) is not None:
                if self._retries:
                    self._submit(worker, self._retries.popleft())
                elif task is not None:
                    call.open += 1
                    self._submit(worker, _Attempt(task, call))
                    task = next(waiting, None)
                else:
                    break
            while call.done:
                yield call.done.popleft()
            if task is None and not call.open:
                return
            self._wait()

    def _free_worker(self) -> Any:
        """Return the worker with the fewest open tasks, or None if all have enough."""
        worker = min(self._load, key=self._load.__getitem__, default=None)
        return None if worker is None or self._load[worker] >= TASKS_PER_WORKER else worker

    def _submit(self, worker: Any, attempt: _Attempt) -> None:
        self._load[worker] += 1
        attempt.worker = worker
        self._open[worker.score.remote(msgspec.msgpack.encode(attempt.task))] = attempt

    def _wait(self) -> None:
        """Wait until a task ends or a worker begins."""
        for reference in self._wait_for([*self._open, *self._starting]):
            if reference in self._starting:
                self._add_worker(reference)
            else:
                self._end_task(reference)

    def _wait_for(self, references: list[Any]) -> list[Any]:
        """Wait until one of the answers exists, and return the references of those that do."""
        while True:
            done, _ = self._ray.wait(references, num_returns=1, timeout=REPORT_SECONDS)
            if done:
                return list(done)
            if not self._load:
                needs = ", ".join(f"{name} {value:g}" for name, value in self._resources.items())
                log.warning("waiting for workers to start and to load models (each: %s)", needs)

    def _add_worker(self, reference: Any) -> None:
        worker = self._starting.pop(reference)
        try:
            name, fault = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._count_failed_start(error)
            self._replace(worker)
            return
        if fault:
            raise UsageError(fault)
        self._check_visible(join(self._folder, name))
        self._failed_starts = 0
        self._load[worker] = 0

    def _count_failed_start(self, error: BaseException) -> None:
        """Raise BackendError when `ATTEMPTS` workers in succession have not started."""
        self._failed_starts += 1
        if self._failed_starts >= ATTEMPTS and not self._load:
            reason = _reason(error)
            raise BackendError(f"{ATTEMPTS} workers ended at their start: {reason}") from None

    def _check_visible(self, path: str) -> None:
        """Raise UsageError if this process does not see a file that a worker has written."""
        end = time.monotonic() + VISIBLE_SECONDS
        while FileVersion.of(path) is None:
            if time.monotonic() > end:
                raise UsageError(
                    f"a worker does not write to the same folder {self._folder} as this process: "
                    "with Ray, all nodes need the folder of the output, on a shared file system "
                    "or in an object store"
                )
            time.sleep(0.1)
        remove_file(path)

    def _end_task(self, reference: Any) -> None:
        attempt = self._open.pop(reference)
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            if attempt.number >= ATTEMPTS:
                raise BackendError(
                    f"{ATTEMPTS} workers ended at {attempt.task.shard.lines}: {_reason(error)}"
                ) from None
            attempt.number += 1
            self._retries.append(attempt)
            if self._load.pop(attempt.worker, None) is not None:
                self._replace(attempt.worker)
            return
        if attempt.worker in self._load:
            self._load[attempt.worker] -= 1
        attempt.call.open -= 1
        attempt.call.done.append(msgspec.msgpack.decode(answer, type=ShardAnswer).result())

    def _replace(self, worker: Any) -> None:
        """Start another worker in place of one that failed."""
        self._kill(worker)
        self._begin(self._actor.remote(self._arguments))

    def _kill(self, worker: Any) -> None:
        with contextlib.suppress(Exception):  # it has ended
            self._ray.kill(worker)

    def close(self) -> None:
        for worker in [*self._new, *self._load, *self._starting.values()]:
            self._kill(worker)
        self._new = []
        if self._folder:
            with contextlib.suppress(OSError):
                remove_file(join(self._folder, self._probe))


@contextlib.contextmanager
def ray_executor(scorer: Scorer, options: ScoreOptions) -> Iterator[RayExecutor]:
    """Connect to a Ray cluster and start its workers for the time of the block."""
    arguments = ScorerArguments.of(scorer)
    arguments = msgspec.structs.replace(
        arguments,
        recipe=absolute_recipe(arguments.recipe),
        models=absolute_models(options.models),
    )
    with ray_cluster(options.ray.ray_address) as ray:
        executor = RayExecutor(ray, arguments, options.workers, options.ray)
        with contextlib.closing(executor):
            yield executor


def _reason(error: BaseException) -> str:
    return describe(error)[:500]
