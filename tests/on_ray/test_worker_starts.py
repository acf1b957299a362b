"""Workers that start late or end while they load their models, with a double of Ray."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.loading import RecipeSpec
from rag_rewards.scoring.on_ray import ATTEMPTS, RayExecutor
from rag_rewards.scoring.ray_cluster import RayOptions
from rag_rewards.scoring.worker_process import ScorerArguments


class RayError(Exception):
    """The class of the errors of Ray."""


class RayDouble:
    """Starts workers that give these answers in the order of their starts."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, *answers: tuple[str, str] | RayError, timeouts: int = 0) -> None:
        self.answers, self.timeouts = list(answers), timeouts
        self.alive: list[Any] = []

    def remote(self, argument: Any) -> Any:
        """Return an actor class from a class, and an actor from its argument."""
        if isinstance(argument, type):
            return SimpleNamespace(options=lambda **_: self)
        answer = self.answers.pop(0)
        worker = SimpleNamespace(signature=SimpleNamespace(remote=lambda: answer))
        self.alive.append(worker)
        return worker

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


def executor(ray: RayDouble, workers: int = 1) -> RayExecutor:
    arguments = ScorerArguments(RecipeSpec(recipe="arena"), False, False)
    return RayExecutor(ray, arguments, workers, RayOptions(gpus_per_worker=2))


@pytest.mark.parametrize("workers", [1, 2])
def test_another_worker_takes_the_place_of_one_that_ended(workers):
    ray = RayDouble(RayError("killed"), *[("the signature", "")] * workers)
    run = executor(ray, workers)
    assert run.signature() == "the signature"
    assert len(ray.alive) == workers
    run.close()
    assert not ray.alive


def test_workers_that_all_end_are_an_error_with_the_reason():
    ray = RayDouble(*[RayError("out of memory")] * (ATTEMPTS + 1))
    run = executor(ray)
    with pytest.raises(BackendError, match=r"4 workers ended at their start: .*out of memory"):
        run.signature()
    run.close()
    assert not ray.alive


def test_a_wait_for_resources_is_logged(caplog):
    run = executor(RayDouble(("the signature", ""), timeouts=2))
    assert run.signature() == "the signature"
    message = "waiting for workers to start and to load models (each: num_cpus 1, num_gpus 2)"
    assert caplog.messages == [message] * 2


def test_a_model_that_cannot_be_loaded_is_not_loaded_again():
    run = executor(RayDouble(("", "there is no folder models/typo")))
    with pytest.raises(UsageError, match="there is no folder models/typo"):
        run.signature()
