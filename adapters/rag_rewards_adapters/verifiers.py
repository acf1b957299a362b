"""Recipes as reward functions of verifiers' tasks.

In your own module,

    from rag_rewards_adapters.verifiers import reward
    arena = reward("arena")

and in the configuration of the task: `rewards: {arena: {fn: "my_module:arena", weight: 1.0}}`. The
data of the task has the fields of a row (`answers`, `documents`, `supporting`, …).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rag_rewards.loading import RecipeSource
from rag_rewards.rollout import Score
from rag_rewards.rows.columns import rollout_from_columns
from rag_rewards_adapters.callables import each, value_of


def reward(recipe: RecipeSource, **options: Any) -> Callable[[Any, Any], Awaitable[float]]:
    """Return an asynchronous function of `task` and `trace`, which scores the last reply.

    Components become metrics of the trace, under the name of the recipe. The options have the names
    of the command line. Raises UsageError for a recipe that compares the rollouts of a group,
    because verifiers scores one trace at a time (verifiers/v1/task.py, Task.score). The function
    raises RolloutError for an unscored rollout; verifiers then records None and the error.
    """
    scorer = each(recipe, **options).scorer

    async def score(task: Any, trace: Any) -> float:
        rollout = rollout_from_columns(_fields(task), response=_reply(trace))
        result = (await scorer.score_each_async([rollout]))[0]
        if isinstance(result, Score):
            trace.record_metrics(_metrics(scorer.reward.name, result))
        return value_of(result)

    return score


def _fields(task: Any) -> dict[str, Any]:
    """Return the data of the task. The default question is the text of its prompt."""
    fields = dict(task.model_dump())
    if fields.get("question") is None:
        fields["question"] = task.prompt_text or None
    return fields


def _reply(trace: Any) -> str:
    """Return the last message of the model, with the reasoning that a server separated from it.

    A rollout without any message has an empty response, which the recipe scores.
    """
    messages = trace.assistant_messages
    is_own = messages and trace.root_reply is None
    thought = messages[-1].reasoning_content if is_own else None
    text = str(trace.last_reply)
    return f"<think>{thought}</think>{text}" if thought else text


def _metrics(name: str, score: Score) -> dict[str, float]:
    """Return the components that have a value, under the name of the recipe."""
    return {f"{name}/{key}": value for key, value in score.components.items() if value is not None}
