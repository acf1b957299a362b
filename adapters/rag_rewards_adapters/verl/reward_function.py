"""Rewards as plain functions of one rollout, for verl's own reward managers.

    reward.custom_reward_function.path=pkg://rag_rewards_adapters.verl
    +reward.custom_reward_function.reward_kwargs.recipe=arena

These settings work from version 0.5 on. From 0.9 on, the reward manager `rag_rewards` (manager.py)
reads the same settings, and also token ids, prompts and tool turns. Recipes that compare the
rollouts of a group need the agent loop `rag_group` (group.py).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.rollout import Rollout, ScoreOrError
from rag_rewards.rows.columns import rollout_from_columns
from rag_rewards.scorer import Scorer, required_models
from rag_rewards.training.curriculum import Curriculum
from rag_rewards_adapters.scoring import score_of
from rag_rewards_adapters.verl.config import (
    NEEDS_ENGINE,
    NEEDS_GROUP_LOOP,
    RewardOptions,
    model_to_set,
    plain_value,
)
from rag_rewards_adapters.verl.rows import extra_numbers, row_fields

NEEDS_STEP = (
    "a curriculum needs the training step, which verl does not pass to a reward function: use the "
    "reward manager (reward.reward_manager.name=rag_rewards) or the agent loop rag_group, which "
    "get it (verl 0.9 and later), or start compute_score once for each stage"
)
"""The error of a curriculum in a plain function."""
NEEDS_MANAGER = (
    "recipe {name} calls models, and if one fails for a rollout, verl would train on the other "
    "rollouts of the prompt: use the agent loop rag_group, or the reward manager "
    "(reward.reward_manager.name=rag_rewards), which checks that verl replaces the group"
)
"""The error of a recipe with models in a plain function, which does not know the configuration."""

_ROUTER_ARGUMENTS = ("reward_router_address", "reward_model_tokenizer")
"""Arguments that verl's naive manager adds for rewards that use its reward model."""


class ComputeScore:
    """`compute_score(data_source, solution_str, ground_truth, extra_info, **reward_kwargs)`.

    Returns the reward as `score`, the components of the recipe and, if the recipe defines a correct
    answer, `acc`. All samples have the same keys. Raises UsageError for invalid settings, for
    recipes of group scope, for curricula, for a model that is not set and, from verl 0.9 on, for
    recipes with models; RolloutError if a rollout cannot be scored, which verl counts as failed.

    The function reads only the text. The reward manager `rag_rewards` and the agent loop also read
    token ids and tool turns.

    >>> result = compute_score("qa", "<think>…</think><answer>Paris</answer>", "Paris",
    ...                        recipe="naive-grpo")
    >>> result["score"], result["acc"]
    (2.0, 1.0)
    """

    def __init__(self, max_scorers: int = 4) -> None:
        # A process uses the settings of one run; the limit is for a caller who tries many.
        self._load = lru_cache(maxsize=max_scorers)(_load)
        self._lock = threading.Lock()

    def __call__(
        self,
        data_source: Any,
        solution_str: str,
        ground_truth: Any,
        extra_info: Any = None,
        **reward_kwargs: Any,
    ) -> dict[str, float]:
        scorer = self.scorer(reward_kwargs)
        rollout = _rollout(solution_str, ground_truth, extra_info)
        return _numbers(scorer, rollout, scorer.score_each([rollout])[0])

    def scorer(self, reward_kwargs: Mapping[str, Any]) -> Scorer:
        """Return the scorer of these settings, which is loaded once."""
        options = {key: reward_kwargs[key] for key in reward_kwargs if key not in _ROUTER_ARGUMENTS}
        key = msgspec.json.encode(plain_value(options), order="deterministic")
        with self._lock:
            return self._load(key)

    def __reduce__(self) -> str:
        return "compute_score"  # a process pool finds it by its name


async def compute_score_async(
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    **reward_kwargs: Any,
) -> dict[str, float]:
    """The same for recipes with a judge: many rollouts wait for their verdicts concurrently.

    From verl 0.9 on, use the reward manager `rag_rewards` for them.
    """
    scorer = compute_score.scorer(reward_kwargs)
    rollout = _rollout(solution_str, ground_truth, extra_info)
    return _numbers(scorer, rollout, (await scorer.score_each_async([rollout]))[0])


def _load(options: bytes) -> Scorer:
    """Load a scorer of single rollouts at any step. UsageError for other rewards."""
    read = RewardOptions.of(msgspec.json.decode(options))
    if read.monitor is not None:
        raise UsageError(NEEDS_ENGINE)
    scorer = read.scorer()
    if scorer.scope == "group":
        raise UsageError(NEEDS_GROUP_LOOP.format(name=scorer.reward.name))
    if isinstance(scorer.reward, Curriculum):
        raise UsageError(NEEDS_STEP)
    if scorer.has_models and _trains_partial_groups():
        raise UsageError(NEEDS_MANAGER.format(name=scorer.reward.name))
    return scorer


def _trains_partial_groups() -> bool:
    """Return whether verl ignores the failure of a rollout: from 0.9 on, which has the manager."""
    try:
        major, minor, *_ = version("verl").split(".")
        return (int(major), int(minor)) >= (0, 9)
    except (PackageNotFoundError, ValueError):
        return False


def _rollout(response: str, ground_truth: Any, extra_info: Any) -> Rollout | RolloutError:
    try:
        return rollout_from_columns(row_fields(ground_truth, extra_info), response=response)
    except RolloutError as error:
        return error


def _numbers(
    scorer: Scorer, rollout: Rollout | RolloutError, result: ScoreOrError
) -> dict[str, float]:
    """Return the numbers of a score. Raises the error of the rollout, or of a missing model."""
    if isinstance(result, RolloutError) and isinstance(rollout, Rollout):
        kinds = required_models(scorer.reward, [rollout])
        if missing := [kind for kind in kinds if getattr(scorer.models, kind) is None]:
            raise model_to_set(scorer.reward, min(missing)) from result
    score = score_of(result)
    return {"score": float(score.value or 0.0), **extra_numbers(score, scorer)}


compute_score = ComputeScore()
