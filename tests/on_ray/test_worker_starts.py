"""Workers that start late or end repeatedly, with a double of Ray."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.loading import RecipeSpec
from rag_rewards.scoring.on_ray import ATTEMPTS, RayWorkers
from rag_rewards.scoring.plan import Shard
from rag_rewards.scoring.ray_cluster import RayOptions
from rag_rewards.scoring.shard import Part, ShardJob, ShardTask
from rag_rewards.scoring.workers import ScorerArguments


class RayError(Exception):
    """The class of the errors of Ray."""


class RayTaskError(RayError):
    """An error that a worker has raised."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Reference:
    """A value that nobody may read before Ray reports that it exists."""

    def __init__(self, answer: Any) -> None:
        self._answer, self._exists = answer, False

    def arrives(self) -> Reference:
        self._exists = True
        return self

    def value(self) -> Any:
        assert self._exists, "a read before the value exists stops the run"
        if isinstance(self._answer, RayError):
            raise self._answer
        return self._answer


class RayDouble:
    """Starts workers that give this answer."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, answer: str | RayError, timeouts: int = 0) -> None:
        self.answer, self.timeouts = answer, timeouts
        self.alive: list[Any] = []
        self.options: dict[str, Any] = {}

    def remote(self, argument: Any) -> Any:
        """Return an actor class from a class, and an actor from its argument."""
        if isinstance(argument, type):
            return SimpleNamespace(options=self._with_options)
        worker = SimpleNamespace(signature=SimpleNamespace(remote=lambda: self.answer))
        self.alive.append(worker)
        return worker

    def _with_options(self, **options: Any) -> Any:
        self.options = options
        return self

    def wait(self, references: list[Any], *, num_returns: int, timeout: float) -> tuple[list, list]:
        assert timeout < 60
        if self.timeouts:
            self.timeouts -= 1
            return [], references
        return references[:num_returns], references[num_returns:]

    def get(self, reference: Any) -> Any:
        if isinstance(reference, RayError):
            raise reference
        return reference

    def kill(self, worker: Any) -> None:
        self.alive.remove(worker)


def shard(index: int) -> Shard:
    return Shard(index, ())


def workers_of(ray: RayDouble, workers: int = 1) -> RayWorkers:
    arguments = ScorerArguments(RecipeSpec(recipe="arena"), False, False)
    return RayWorkers(ray, arguments, workers, RayOptions(gpus_per_worker=2))


def test_ray_starts_workers_again():
    ray = RayDouble("the signature")
    workers = workers_of(ray, 2)
    assert workers.signature() == "the signature"
    assert ray.options["max_restarts"] == -1
    assert ray.options["max_task_retries"] == ATTEMPTS - 1
    assert len(ray.alive) == 2
    workers.close()
    assert not ray.alive


def test_workers_that_all_end_are_an_error_with_the_reason():
    workers = workers_of(RayDouble(RayError("out of memory")))
    with pytest.raises(BackendError, match=r"4 workers ended at their start: .*out of memory"):
        workers.signature()


def test_a_wait_for_resources_is_logged(caplog):
    workers = workers_of(RayDouble("the signature", timeouts=2))
    assert workers.signature() == "the signature"
    message = "waiting for workers to start and to load models (each: num_cpus 1, num_gpus 2)"
    assert caplog.messages == [message] * 2


def test_no_call_of_a_worker_that_restarts_stops_the_others(tmp_path):
    """The second call of a worker that ended waits behind its first one, which may be slow."""
    ray = RayDouble("the signature")
    workers = workers_of(ray)
    [worker] = ray.alive
    answers = [RayError("ended")] * 2 + [Part(shard=shard(i)) for i in range(3)]
    score = SimpleNamespace(remote=lambda job, task: Reference(answers.pop(0)))
    worker.score = SimpleNamespace(options=lambda max_task_retries: score)
    worker.signature.remote = lambda: Reference("the signature")
    ray.get = lambda reference: reference.value()
    ray.wait = lambda references, **_: ([references[0].arrives()], [])
    ray.put = lambda job: job
    workers.begin(ShardJob(files=[], folder=str(tmp_path)))
    for i in range(3):
        (tmp_path / f"part-{i:05d}.jsonl").touch()
    parts = list(workers.run([ShardTask(shard(i)) for i in range(3)]))
    assert [part.shard.index for part in parts] == [0, 1, 2]


def test_an_error_of_a_worker_is_raised():
    fault = UsageError("there is no folder models/typo")
    with pytest.raises(UsageError, match="there is no folder models/typo"):
        workers_of(RayDouble(RayTaskError(fault))).signature()
