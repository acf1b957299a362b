"""verl's columns as rollouts, and scores as verl's extra information."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rag_rewards.errors import DataError, RolloutError
from rag_rewards.evidence.protocols import Models
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows.columns import DATASET_FIELDS, label_fields, rollout_from_columns, to_builtins
from rag_rewards.rows.decisions import decisions_of, undecided_share
from rag_rewards.training.curriculum import Curriculum
from rag_rewards_adapters.unscored_handler import with_value


def row_fields(ground_truth: Any, *extra: Any) -> dict[str, Any]:
    """Return the fields of a row, without those that are None.

    Fields of `ground_truth` take precedence over those of `extra`, and later mappings of `extra`
    over earlier ones. The id is that of the data set: `id`, else `index`.

    >>> row_fields('{"answers": ["Seine"]}', {"index": 3, "question": "Which river?"})
    {'question': 'Which river?', 'id': 3, 'answers': ['Seine']}
    """
    values: dict[str, Any] = {}
    for information in extra:
        if isinstance(information, Mapping):
            values.update((key, value) for key, value in information.items() if value is not None)
    fields = {name: values[name] for name in values if name in DATASET_FIELDS}
    if "id" not in fields and "index" in values:
        fields["id"] = values["index"]
    try:
        gold = label_fields(ground_truth)
    except DataError as error:
        error.row = str(fields["id"]) if "id" in fields else None
        error.path = "reward_model.ground_truth"
        raise
    fields.update((name, value) for name, value in gold.items() if value is not None)
    return fields


def rollout_from_row(columns: Mapping[str, Any], **trainer: Any) -> Rollout | RolloutError:
    """Return a rollout from the columns of a data set, as agent loops and reward managers get them.

    `reward_model.ground_truth` takes precedence over `tool_extra_fields` (set by the agent loop),
    and these over `extra_info`. `trainer` contains the fields of the trainer (response,
    finish_reason, …).
    """
    truth = columns.get("reward_model")
    truth = truth.get("ground_truth") if isinstance(truth, Mapping) else None
    try:
        fields = row_fields(truth, columns.get("extra_info"), columns.get("tool_extra_fields"))
        step = to_builtins(columns.get("global_steps"))
    except RolloutError as error:
        return error.with_traceback(None)
    return rollout_from_columns(fields, **{"step": step, **trainer})


# --- scores ------------------------------------------------------------------------------------

_POLICY = (
    "policy",
    "set the URL of a scoring server (model=URL backend=vllm), or use the policy's own rollout "
    "engine through the agent loop rag_group",
)
_WAYS = {
    "logprobs": _POLICY,
    "masked_answers": _POLICY,
    "masked_logprobs": _POLICY,
    "verdicts": ("judge", "set judge=URL judge_model=NAME"),
    "nli": ("entailment", "set nli=PATH"),
    "similarity": ("similarity", "set similarity=PATH"),
}
"""Evidence → the kind of model that provides it, and how to set one."""


def valid_score(result: ScoreOrError, models: Models) -> Score:
    """Return a score that has a value. Raise the RolloutError otherwise: a reward is never 0 then.

    If evidence is missing because no model is set, the error names the setting.
    """
    result = with_value(result)
    if isinstance(result, RolloutError):
        raise _with_setting(result, models)
    return result


def _with_setting(error: RolloutError, models: Models) -> RolloutError:
    kind, way = _WAYS.get(error.path.split(".")[0], ("", ""))
    if not kind or getattr(models, kind) is not None:
        return error
    detailed = type(error)(f"{error.message}; {way}", error.path)
    detailed.row = error.row
    return detailed


def extra_numbers(score: Score, has_correct: bool, decides: bool = False) -> dict[str, float]:
    """Return the extra information of a rollout: its components, and `acc` if `has_correct`.

    If the recipe `decides` on answers, `undecided` states whether this one is undecided. All
    rollouts have the same keys; a missing value is NaN.
    """
    values = dict(score.components)
    if has_correct:
        values["acc"] = score.correct
    if decides:
        values["undecided"] = undecided_share(decisions_of([score]))
    return {name: math.nan if value is None else float(value) for name, value in values.items()}


def defines_correct(reward: Recipe | Curriculum) -> bool:
    """Return whether a recipe, or any stage of a curriculum, defines a correct answer."""
    return any(recipe.correct is not None for recipe in reward.recipes)
