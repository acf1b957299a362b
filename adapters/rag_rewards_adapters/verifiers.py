"""verifiers and prime-rl: recipes as rewards of a task, and advantages of turns for a group.

In your own module,

    from rag_rewards_adapters.verifiers import reward
    arena = reward("arena")

and in the configuration of the task: `rewards: {arena: {fn: "my_module:arena", weight: 1.0}}`. The
data of the task has the fields of a row (`answers`, `documents`, `supporting`, …).
`rag-rewards init verifiers` writes a package with a taskset that uses such a reward.

verifiers scores one trace at a time. A recipe that compares the rollouts of a group, and advantages
of turns, need an algorithm of prime-rl: `GroupCredit` scores all traces of a group and writes the
advantage of each token into them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from statistics import fmean
from typing import Any

from rag_rewards.errors import DataError, RolloutError
from rag_rewards.loading import RecipeSource
from rag_rewards.rollout import Rollout, Score
from rag_rewards.scorer import Scorer
from rag_rewards_adapters.reading import read_rollout
from rag_rewards_adapters.scoring import (
    GroupRecipe,
    SingleRecipe,
    component_metrics,
    group_values,
    load,
)

log = logging.getLogger("rag_rewards")


def reward(
    recipe: RecipeSource | None = None, /, **options: Any
) -> Callable[[Any, Any], Awaitable[float]]:
    """Return an asynchronous function of `task` and `trace`, which scores a trace.

    Components become metrics of the trace, under the name of the recipe. A recipe that reads turns
    gets all messages since the first reply; its rewards of turns are summed. The options have the
    names of the command line. Raises UsageError for a recipe that compares the rollouts of a group,
    because verifiers scores one trace at a time (verifiers/v1/task.py, Task.score), and for a
    curriculum, because verifiers does not pass the training step. The function raises RolloutError
    for an unscored rollout; verifiers then records None and the error, and prime-rl trains on the
    other traces of the group. A recipe with models therefore logs a warning: use it for
    evaluations, and `GroupCredit` for training.
    """
    scorer = load(recipe, options)
    way = "use GroupCredit in an algorithm of prime-rl"
    single = SingleRecipe(scorer, "verifiers", for_groups=way, way_to_turn_credit=way)
    if scorer.has_models:
        log.warning(
            "%s calls models, and if one fails for a trace, prime-rl trains on the other traces of "
            "the group: use this reward for evaluations, and GroupCredit for training",
            scorer.reward.name,
        )

    async def score(task: Any, trace: Any) -> float:
        result = await single.score(_rollout(scorer, task, trace))
        trace.record_metrics(component_metrics(scorer.reward.name, result))
        return float(result.value or 0.0)

    return score


class GroupCredit(GroupRecipe):
    """Scores the traces of a group and writes the advantages of their tokens.

    recipe          a recipe in any form, also one that compares the rollouts of a group
    credit          a credit method or a Credit; default: the settings `credit` of the recipe
    credit_options  options of the method, such as {"norm": "separate"}
    std_floor       use (R − mean)/max(std, floor) within the group, the advantage of LEAR
    patience        number of consecutive groups in which a model failed, or in which no trace is
                    scored, before the error is raised
    options         settings and models, with the names of the command line

    Without a credit method and `std_floor`, the advantage is R − mean, as in prime-rl's `grpo`.
    All tokens of an unscored trace have the advantage 0, so that prime-rl does not train on it.
    Call the object in `score_group` of a subclass of prime-rl's Algorithm, with the traces.
    """

    trainer = "prime-rl"
    way_to_turn_credit = "set credit= to a credit method"

    async def __call__(self, traces: Sequence[Any]) -> list[float]:
        """Write rewards, metrics and advantages into the traces of a group. Return the rewards."""
        everyone = [range(len(traces))]
        rollouts = [_rollout(self.scorer, trace.task.data, trace) for trace in traces]
        scores = await self.scores(rollouts, everyone)
        values = group_values(scores, everyone)
        for trace, score, value in zip(traces, scores, values, strict=True):
            if score is not None:
                trace.record_metrics(component_metrics(self.name, score))
                trace.record_reward(self.name, value)
        if self.credit is not None:
            turns = self.turn_advantages(scores, rollouts, everyone)
        else:
            turns = [[value] for value in self._advantages(scores)]
        for trace, advantages in zip(traces, turns, strict=True):
            _write(trace, advantages or [0.0])
        return values

    def _advantages(self, scores: Sequence[Score | None]) -> list[float]:
        """Return R − mean, or the advantage of LEAR, of each trace; 0 for an unscored one."""
        values = group_values(scores, [range(len(scores))], self.std_floor)
        mean = fmean(values) if values else 0.0
        return [value - mean for value in values]


def _write(trace: Any, turns: Sequence[float]) -> None:
    """Write the advantage of each turn to its sampled tokens. One value is that of all turns.

    Raises RolloutError if the trace has another number of turns than the rollout.
    """
    nodes = [node for node in trace.nodes if any(node.mask)]
    values = list(turns) * len(nodes) if len(turns) == 1 else list(turns)
    if len(values) != len(nodes):
        raise RolloutError(f"{len(values)} advantages for {len(nodes)} replies of the trace")
    for node, value in zip(nodes, values, strict=True):
        node.advantages = [float(value)] * sum(node.mask)


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
