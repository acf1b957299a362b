"""verifiers and prime-rl: recipes as rewards of tasks and groups, and rewards of turns.

In your own module,

    from rag_rewards_adapters.verifiers import reward
    arena = reward("arena")

and in the configuration of the task: `rewards: {arena: {fn: "my_module:arena", weight: 1.0}}`. The
data of the task has the fields of a row (`answers`, `documents`, `supporting`, …).
`rag-rewards init verifiers` writes a package with a taskset that uses such a reward.

A task scores one trace at a time. An environment with several attempts at a task, such as the
`BestOfNEnv` of verifiers, has all of them in one episode: `EpisodeReward` scores them as a group.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from itertools import accumulate, takewhile
from operator import mul
from typing import Any

from rag_rewards.errors import DataError, RolloutError, plain
from rag_rewards.loading import RecipeSource
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.scorer import Scorer
from rag_rewards.training.credit.entries import Advantages
from rag_rewards_adapters.reading import read_rollout
from rag_rewards_adapters.scoring import (
    GroupRecipe,
    SingleRecipe,
    component_metrics,
    group_values,
    load,
    score_of,
    with_value,
)

log = logging.getLogger("rag_rewards")


def __getattr__(name: str) -> Any:
    if name == "GroupCredit":
        raise ImportError(f"{__name__} has no {name}: use EpisodeReward, which replaces it")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def reward(
    recipe: RecipeSource | None = None, /, *, turn_rewards: bool = False, **options: Any
) -> Callable[[Any, Any], Awaitable[float | dict[str, float]]]:
    """Return an asynchronous function of `task` and `trace`, which scores a trace.

    turn_rewards  write the state after each turn, for the algorithm `turn_credit` of prime-rl
    options       settings and models, with the names of the command line

    Components become metrics of the trace, under the name of the recipe. A recipe that reads turns
    gets all messages since the first reply; its rewards of turns are summed. With `turn_rewards`,
    the function also writes their sum after each turn (`_write_states`), and returns two rewards:
    that of the recipe, and minus the progress between the first and the last turn, which
    `turn_credit` adds. Their sum is the reward of the first turn.

    Raises UsageError for a recipe that compares the rollouts of a group, because verifiers scores
    one trace at a time (verifiers/v1/task.py, Task.score), and for a curriculum, because verifiers
    does not pass the training step. The function raises RolloutError for an unscored rollout;
    verifiers then records None and the error, and prime-rl trains on the other traces of the group.
    A recipe with models therefore logs a warning: use it for evaluations, and `EpisodeReward` for
    training.
    """
    scorer = load(recipe, options)
    way = None if turn_rewards else "pass turn_rewards=True, and use turn_credit of prime-rl"
    groups = "use EpisodeReward in an environment with several attempts"
    single = SingleRecipe(scorer, "verifiers", for_groups=groups, way_to_turn_credit=way)
    name = str(scorer.reward.name)
    if scorer.has_models:
        log.warning(
            "%s calls models, and if one fails for a trace, prime-rl trains on the other traces of "
            "the group: use this reward for evaluations, and EpisodeReward for training",
            name,
        )

    @cache
    def warn_once() -> None:
        log.warning(
            "%s has no rewards of turns, so turn_rewards=True has no effect: remove it, and use "
            "another algorithm than turn_credit",
            name,
        )

    async def score(task: Any, trace: Any) -> float | dict[str, float]:
        result = await single.score(_rollout(scorer, task, trace))
        trace.record_metrics(component_metrics(name, result))
        value = float(result.value or 0.0)
        if not turn_rewards:
            return value
        if not result.turns:
            warn_once()
            return value
        _write_states(trace, [entry or 0.0 for entry in result.turns])
        return {name: value, f"{name}/turn_rewards": -_progress(trace)}

    return score


class EpisodeReward(GroupRecipe):
    """Scores the attempts at a task, which are the traces of one episode, as a group.

    recipe          a recipe in any form, also one that compares the rollouts of a group
    credit          a credit method or a Credit; default: the settings `credit` of the recipe
    credit_options  options of the method, such as {"norm": "separate"}
    std_floor       record (R − mean)/max(std, floor) within the group, the advantage of LEAR
    patience        number of consecutive episodes without any score before an error is logged
    options         settings and models, with the names of the command line

    Call the object in `finalize` of an environment, with the traces of the episode. It records the
    reward of each trace, from which prime-rl's `grpo` subtracts the mean of the group. An unscored
    trace gets its error, so that prime-rl does not train on it; if a model fails, these are all
    traces of the group. A trace that failed before is no part of the group. verifiers continues
    after every error, so that none can end a run.

    With a credit method, prime-rl's `turn_credit` with `gamma = 0` and `beta = 1` gives the tokens
    of turn t of trace i the advantage u_it − c. Here, u_it is the advantage of the credit method,
    and c is the mean over the traces of the means of u_it over their tokens. For this, the state
    after turn t is Σ_{k ≤ t} (u_ik − u_i1), and the reward is the mean of the trace minus its last
    state.
    """

    trainer = "verifiers"
    way_to_turn_credit = "set credit= to a credit method, and use turn_credit of prime-rl"

    def __init__(
        self, recipe: RecipeSource | None = None, *, patience: int = 8, **options: Any
    ) -> None:
        super().__init__(recipe, **options)
        self._patience, self._failed_episodes = patience, 0
        if self.credit is not None:
            log.warning(
                "%s has the credit method %s: use the algorithm turn_credit of prime-rl with "
                "gamma = 0 and beta = 1, or set credit='group'",
                self.name,
                self.credit.method,
            )

    async def __call__(self, traces: Sequence[Any]) -> None:
        """Write the reward, the metrics and the states of each trace, or its error."""
        traces = [trace for trace in traces if trace.ok]
        everyone = [range(len(traces))]
        rollouts = [_rollout(self.scorer, trace.task.data, trace) for trace in traces]
        self._searches.check(self.scorer.recipes, rollouts)
        results = await self.scorer.score_each_async(rollouts, everyone)
        results = list(map(with_value, results))
        self._count(results)
        scores = [result if isinstance(result, Score) else None for result in results]
        values = group_values(scores, everyone, self.std_floor)
        turns: Advantages = [None] * len(traces)
        if self.credit is None:
            self._sums.check(scores)
        else:
            turns = self.turn_advantages(scores, rollouts, everyone)
        for trace, result, value, advantages in zip(traces, results, values, turns, strict=True):
            try:
                score = score_of(result)
                if advantages is not None:
                    total = _write_advantages(trace, advantages) - _progress(trace)
                    trace.record_reward(f"{self.name}/turn_rewards", total - value)
            except RolloutError as error:
                trace.record_error(error)
            else:
                trace.record_metrics(component_metrics(self.name, score))
                trace.record_reward(self.name, value)

    def _count(self, results: Sequence[ScoreOrError]) -> None:
        """Log an error each time that `patience` consecutive episodes are unscored."""
        errors = [result for result in results if isinstance(result, RolloutError)]
        if not results:
            return
        is_failed = len(errors) == len(results)
        self._failed_episodes = self._failed_episodes + 1 if is_failed else 0
        if is_failed and self._failed_episodes >= self._patience:
            log.error(
                "%s: no trace of the last %d episodes is scored, and prime-rl trains on none of "
                "them: stop the run and repair the cause: %s",
                self.name,
                self._failed_episodes,
                plain(str(errors[0])),
            )
            self._failed_episodes = 0


def _write_advantages(trace: Any, advantages: Sequence[float]) -> float:
    """Write the states of a trace whose differences are those of the advantages of its turns.

    One advantage is that of all turns. Returns the mean over the tokens of the turns, or over the
    turns if a server returned no tokens.
    """
    tokens = [sum(node.mask) for node in trace.nodes if node.sampled]
    values = list(advantages) * len(tokens) if len(advantages) == 1 else list(advantages)
    _write_states(trace, [value - values[0] for value in values])
    weights = tokens if any(tokens) else [1] * len(tokens)
    return float(sum(map(mul, values, weights)) / sum(weights))


def _write_states(trace: Any, rewards: Sequence[float]) -> None:
    """Write the state after each turn, the sum of the rewards of turns so far, into the trace.

    `turn_credit` (PrimeIntellect-ai/prime-rl@0d60244, pull request 3282) reads them, one for each
    sampled turn. The progress of a turn is the difference of its state and the one before, and that
    of the first turn is 0. It adds the progress of the trace to its reward, so that the reward has
    to be that of the trace minus `_progress`. Raises RolloutError for no turn or another number of
    turns, and for a trace with branches, whose turns have no single order.
    """
    if not rewards or len(rewards) != trace.num_turns or trace.num_branches > 1:
        raise RolloutError(
            f"{len(rewards)} rewards of turns for {trace.num_turns} replies in "
            f"{trace.num_branches} branches of the trace"
        )
    trace.info["turn_rewards"] = list(accumulate(rewards))


def _progress(trace: Any) -> float:
    """Return the difference of the last and the first state of a trace."""
    states = trace.info["turn_rewards"]
    return float(states[-1] - states[0])


def _rollout(scorer: Scorer, task: Any, trace: Any) -> Rollout | RolloutError:
    """Return a trace as a rollout, with the messages that the policy saw as its prompt.

    Without them, the likelihoods of a policy would be those under the prompt of the recipe.
    """
    prompt = _prompt(trace)
    if prompt is None and scorer.models.policy is not None:
        return DataError("missing: no message of the trace comes before the first reply", "prompt")
    fields = _fields(task)
    if not any(recipe.reads_turns for recipe in scorer.recipes):
        return read_rollout(fields, prompt, response=_reply(trace))
    reason = "length" if getattr(trace, "is_truncated", False) else None
    return read_rollout(fields, prompt, response=_messages(trace), finish_reason=reason)


def _fields(task: Any) -> dict[str, Any]:
    """Return the data of the task. The default question is the text of its prompt."""
    fields = dict(task.model_dump())
    if fields.get("question") is None:
        fields["question"] = task.prompt_text or None
    return fields


def _prompt(trace: Any) -> list[dict[str, Any]] | None:
    """Return the messages before the first one that the model sampled, None if there are none."""
    before = takewhile(lambda node: not node.sampled, trace.nodes)
    return [node.message.model_dump(exclude_none=True) for node in before] or None


def _messages(trace: Any) -> list[dict[str, Any]]:
    """Return the messages since the first one that the model sampled."""
    sampled = [bool(node.sampled) for node in trace.nodes]
    start = sampled.index(True) if any(sampled) else len(sampled)
    return [node.message.model_dump(exclude_none=True) for node in trace.nodes[start:]]


def _reply(trace: Any) -> str:
    """Return the last message of the model, with the reasoning that a server separated from it.

    A rollout without any message has an empty response, which the recipe scores.
    """
    messages = trace.assistant_messages
    is_own = messages and trace.root_reply is None
    thought = messages[-1].reasoning_content if is_own else None
    text = str(trace.last_reply)
    return f"<think>{thought}</think>{text}" if thought else text
