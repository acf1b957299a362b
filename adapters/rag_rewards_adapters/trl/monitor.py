"""The monitor of likelihood displacement in a GRPOTrainer (see `displacement`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from accelerate.utils import gather_object

from rag_rewards.errors import RagRewardsError, describe
from rag_rewards.evidence.gather import run_coroutine
from rag_rewards.evidence.protocols import Policy
from rag_rewards.rollout import Score
from rag_rewards_adapters.displacement import (
    DisplacementMonitor,
    Likelihood,
    RightResponse,
    right_positions,
)


def watch(
    trainer: Any,
    name: str,
    monitor: DisplacementMonitor,
    policy: Policy,
    scores: Callable[[], Sequence[Score | None]],
) -> None:
    """Call the monitor after each generation of a training, and log its metrics.

    policy  the model in training
    scores  returns the scores of the last generation

    A generation has the weights of its step, and its output has the tokens of the loss. All ranks
    exchange their values, so that each of them logs the mean over the kept responses of all ranks.
    An error on one rank ends all of them. A second call with the same name replaces the monitor.
    """
    watched = vars(trainer).setdefault("_rag_monitors", {})
    has_wrapper = bool(watched)
    watched[name] = monitor, policy, scores
    if has_wrapper:
        return
    generate = trainer._generate_and_score_completions

    def generate_and_watch(inputs: Any) -> Any:
        output = generate(inputs)
        if trainer.model.training:
            for reward, arguments in watched.items():
                for metric, value in _measure(trainer, output, *arguments).items():
                    trainer._metrics["train"][f"{reward}/{metric}"].append(value)
        return output

    trainer._generate_and_score_completions = generate_and_watch


def _measure(
    trainer: Any,
    output: Mapping[str, Any],
    monitor: DisplacementMonitor,
    policy: Policy,
    scores: Callable[[], Sequence[Score | None]],
) -> dict[str, float]:
    """Return the metrics of all ranks. Raises the error of this rank, or that of another one."""
    results: list[Likelihood | str]
    failure = None
    try:
        right = list(_right_responses(output, scores(), trainer.num_generations))
        results = list(run_coroutine(monitor.step(policy, trainer.state.global_step, right)))
    except Exception as error:  # the other ranks wait in gather_object
        failure, results = error, [describe(error)]
    results = gather_object(results)
    if failure is not None:
        raise failure
    if errors := [each for each in results if isinstance(each, str)]:
        raise RagRewardsError(f"the monitor of another rank failed: {errors[0]}")
    return monitor.metrics([each for each in results if isinstance(each, Likelihood)])


def _right_responses(
    output: Mapping[str, Any], scores: Sequence[Score | None], size: int
) -> Iterator[RightResponse]:
    """Yield the right responses of the groups of a generation, with the tokens of its output."""
    present = output["completion_mask"].bool()
    own = output.get("tool_mask", output["completion_mask"])
    for start in range(0, len(scores), size):
        for position in right_positions(scores[start : start + size]):
            i, tokens = start + position, present[start + position]
            prompt = output["prompt_ids"][i][output["prompt_mask"][i].bool()]
            response = output["completion_ids"][i][tokens]
            yield RightResponse.of(prompt.tolist(), response.tolist(), own[i][tokens].tolist())
