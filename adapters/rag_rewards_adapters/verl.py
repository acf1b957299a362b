"""verl: rewards as plain functions, and LEAR's advantage.

    reward.custom_reward_function.path=pkg://rag_rewards_adapters.verl
    +reward.custom_reward_function.reward_kwargs.recipe=arena

works with verl's own reward managers, 0.5 and later. From 0.9 on, the reward manager `rag_rewards`
reads the same settings, and token ids, prompts and tool turns beside (verl_manager.py); recipes
that compare the rollouts of a group go through the agent loop `rag_group` (verl_group.py).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.groups import positions_by_key
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import rollout_from_columns
from rag_rewards.training.advantages import group_advantages
from rag_rewards.training.curriculum import Curriculum
from rag_rewards_adapters.verl_rows import (
    fields_of,
    judges,
    numbers_of,
    score_of,
    scorer_of,
    settled,
)

BYPASSED = (
    "recipe {name} compares the rollouts of a group, and a reward function sees one: set "
    "actor_rollout_ref.rollout.agent.default_agent_loop=rag_group, and leave no other agent_name "
    "in the data (verl 0.9 and later, its V1 trainer)"
)
"""Why a recipe of group scope was not scored, and the way out."""
STEPLESS = (
    "a curriculum goes by the training step, which verl does not tell a reward function: use the "
    "reward manager (reward.reward_manager.name=rag_rewards) or the agent loop rag_group, which "
    "know it (verl 0.9 and later), or start compute_score once for each stage"
)
"""Why stages were not scored, and the way out."""

_ROUTER = ("reward_router_address", "reward_model_tokenizer")
"""What verl's naive manager adds for rewards that ask its reward model."""


class ComputeScore:
    """`compute_score(data_source, solution_str, ground_truth, extra_info, **reward_kwargs)`.

    Returns the reward as `score`, the recipe's components and, where it knows a right answer,
    `acc`: the same numeric keys for every sample. UsageError for settings that cannot be used, for
    recipes of group scope and for curricula; RolloutError where a rollout cannot be scored: verl
    then counts it as failed.

    The text alone is read: where a trainer strips special tokens and tools took turns, the reward
    manager `rag_rewards` or the agent loop sees more.

    >>> scored = compute_score("qa", "<think>…</think><answer>Paris</answer>", "Paris",
    ...                        recipe="naive-grpo")
    >>> scored["score"], scored["acc"]
    (2.0, 1.0)
    """

    def __init__(self, settings: int = 4) -> None:
        # A process has the settings of one run; a bound, for those who try many.
        self._made = lru_cache(maxsize=settings)(_scorer)
        self._making = threading.Lock()

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
        return _result(scorer, scorer.score_each([rollout])[0])

    def scorer(self, reward_kwargs: Mapping[str, Any]) -> Any:
        """The scorer of these settings, made once."""
        given = {key: value for key, value in reward_kwargs.items() if key not in _ROUTER}
        wanted = msgspec.json.encode(settled(given), order="deterministic")
        with self._making:
            return self._made(wanted)

    def __reduce__(self) -> str:
        return "compute_score"  # a process pool finds it by its name


async def compute_score_async(
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    **reward_kwargs: Any,
) -> dict[str, float]:
    """The same for recipes that ask a judge: many rollouts wait for their verdicts at once."""
    scorer = compute_score.scorer(reward_kwargs)
    rollout = _rollout(solution_str, ground_truth, extra_info)
    return _result(scorer, (await scorer.score_each_async([rollout]))[0])


def grpo_clip_std(
    token_level_rewards: Any,
    response_mask: Any,
    index: Sequence[Any],
    config: Any = None,
    **_: Any,
) -> tuple[Any, Any]:
    """A = (R − mean)/max(std, floor) over the rollouts of a prompt, for each token of a response.

    Population std; the floor is `+algorithm.std_floor`, 0.1 where it is not given. Registered as
    `rag_grpo_clip_std`. A prompt with one rollout has no advantage: 0. Rows that verl adds to
    fill a batch have a prompt of their own, and touch no other. Source: LEAR, section 3.3.
    """
    floor = 0.1 if config is None else float(config.get("std_floor", 0.1))
    rewards = token_level_rewards.sum(dim=-1)
    values = rewards.tolist()
    advantages = [0.0] * len(values)
    for rows in positions_by_key(index).values():
        of_group = group_advantages([values[row] for row in rows], std_floor=floor)
        for row, advantage in zip(rows, of_group, strict=True):
            advantages[row] = advantage
    spread = rewards.new_tensor(advantages).unsqueeze(-1) * response_mask
    return spread, spread


def of_rollouts(scorer: Any) -> Any:
    """The scorer, if it scores single rollouts at any step. UsageError for others."""
    if scorer.scope == "group":
        raise UsageError(BYPASSED.format(name=scorer.reward.name))
    if isinstance(scorer.reward, Curriculum):
        raise UsageError(STEPLESS)
    return scorer


def _scorer(wanted: bytes) -> Any:
    return of_rollouts(scorer_of(msgspec.json.decode(wanted)))


def _rollout(response: str, ground_truth: Any, extra_info: Any) -> Rollout | RolloutError:
    try:
        return rollout_from_columns(fields_of(ground_truth, extra_info), response=response)
    except RolloutError as error:
        return error


def _result(scorer: Any, result: Score | RolloutError) -> dict[str, float]:
    score = score_of(result, scorer.models)
    return {"score": float(score.value or 0.0), **numbers_of(score, judges(scorer.reward))}


compute_score = ComputeScore()
