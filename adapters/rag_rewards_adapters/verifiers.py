"""Recipes as reward functions of verifiers' tasks.

In a module of one's own,

    from rag_rewards_adapters.verifiers import reward
    arena = reward("arena")

named in the task's configuration: `rewards: {arena: {fn: "my_module:arena", weight: 1.0}}`. The
task's data has the fields of a row (`answers`, `documents`, `supporting`, …).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rag_rewards.loading import RecipeSource
from rag_rewards.rollout import Score
from rag_rewards.rows.columns import rollout_from_columns
from rag_rewards_adapters.callables import each, value_of


def reward(recipe: RecipeSource, **options: Any) -> Callable[[Any, Any], Awaitable[float]]:
    """An asynchronous function of `task` and `trace`: the recipe's value for the last reply.

    Components become metrics of the trace, under the recipe's name. Options are the command
    line's. UsageError for recipes that compare the rollouts of a group: verifiers scores one
    trace at a time (verifiers/v1/task.py, Task.score). RolloutError where there is no score:
    verifiers then records None and the error, never 0.
    """
    scorer = each(recipe, **options).scorer

    async def scored(task: Any, trace: Any) -> float:
        rollout = rollout_from_columns(_fields(task), response=_reply(trace))
        result = (await scorer.score_each_async([rollout]))[0]
        if isinstance(result, Score):
            trace.record_metrics(_metrics(scorer.reward.name, result))
        return value_of(result)

    return scored


def _fields(task: Any) -> dict[str, Any]:
    """The task's data; what its prompt asks is the question where no field says it."""
    fields = dict(task.model_dump())
    if fields.get("question") is None:
        fields["question"] = task.prompt_text or None
    return fields


def _reply(trace: Any) -> str:
    """The last thing the model said, with the reasoning that a server took out of it.

    A rollout that ended before a word is an empty response: data, with the recipe's reward.
    """
    own = trace.assistant_messages
    thought = own[-1].reasoning_content if own and trace.root_reply is None else None
    text = str(trace.last_reply)
    return f"<think>{thought}</think>{text}" if thought else text


def _metrics(name: str, score: Score) -> dict[str, float]:
    """Components that have a value, under the recipe's name."""
    return {f"{name}/{key}": value for key, value in score.components.items() if value is not None}
