"""OpenEnv: a recipe as a rubric of an environment. It imports openenv.

The protocol is that of openenv 0.10.0, `core/rubrics/base.py` and `core/rubrics/trajectory.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openenv.core.rubrics import TrajectoryRubric

from rag_rewards.errors import RolloutError, plain
from rag_rewards.evidence.gather import run_coroutine
from rag_rewards.loading import RecipeSource
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.scored import turn_rewards
from rag_rewards_adapters.reading import read_rollout
from rag_rewards_adapters.scoring import SingleRecipe, component_metrics, load

log = logging.getLogger("rag_rewards")

UNSCORED = "unscored"
"""Key of the reason why a rollout is unscored in the metadata of its last observation."""
_BESIDE = "use RagReward of rag_rewards_adapters.trl beside an environment without a reward"


def recipe_of(recipe: RecipeSource | None, options: Mapping[str, Any]) -> SingleRecipe:
    """Return a recipe that scores one rollout at a time.

    Raises UsageError for a recipe that compares the rollouts of a group, and for a curriculum: an
    environment sees neither the other rollouts nor the training step.
    """
    scorer = load(recipe, options)
    single = SingleRecipe(
        scorer,
        "OpenEnv",
        for_groups=_BESIDE,
        for_stages=_BESIDE,
        way_to_turn_credit="read compute_step_rewards() of the rubric",
    )
    if scorer.has_models:
        log.warning(
            "%s calls models, and if one fails for a rollout, a trainer uses the other rollouts of "
            "its group: use this reward for evaluations; for training, %s",
            scorer.reward.name,
            _BESIDE,
        )
    return single


def turn_of(action: Any, observation: Any) -> dict[str, Any]:
    """Return the turn of an action and its observation, in the form of the field `turns` of a row.

    The action has `text`, the words of the policy, and `query`, None without a search. The
    observation has `results`, the documents, and `error`, the reason of a failure.
    """
    return {
        "text": action.text,
        "queries": [] if action.query is None else [action.query],
        "results": observation.results,
        "error": observation.error,
    }


class RagRubric(TrajectoryRubric):  # type: ignore[misc]
    """A recipe as a rubric, which scores an episode at its last step.

    recipe   a recipe in any form that scores one rollout
    turn     function from an action and its observation to a turn, see `turn_of`
    options  settings and models, with the names of the command line

    `rubric(action, observation)` returns None for a step before the last one: the loop of OpenEnv
    takes the last number of an episode, which would be that of an earlier step if the last step is
    unscored. At the last step, whose observation has `done`, it returns the reward, or None for an
    unscored rollout; `result` is then its error. Call `reset(row)` before each episode.

    An observation can have `finish_reason`, such as `max_turns`.

    Raises UsageError as `recipe_of` does.
    """

    def __init__(
        self,
        recipe: RecipeSource | SingleRecipe | None = None,
        /,
        *,
        turn: Callable[[Any, Any], Mapping[str, Any]] = turn_of,
        **options: Any,
    ) -> None:
        super().__init__(intermediate_reward=None)
        self.recipe = recipe if isinstance(recipe, SingleRecipe) else recipe_of(recipe, options)
        self.row: Mapping[str, Any] = {}
        """The fields of the question: `answers`, `supporting`, `prompt`, `response_prefix`, …"""
        self.result: Score | RolloutError | None = None
        """The score of the last episode or its error, None before its last step."""
        self._turn = turn

    def reset(self, row: Mapping[str, Any] | None = None) -> None:
        """Begin an episode with the fields of its question. Without them, those of the last one."""
        super().reset()
        self.row, self.result = self.row if row is None else row, None

    def score_trajectory(self, trajectory: Sequence[tuple[Any, Any]]) -> float | None:
        """Return the reward of an episode, None if it is unscored."""
        try:
            score = run_coroutine(self.recipe.score(self._rollout(trajectory)))
        except RolloutError as error:
            self.result = error
            log.warning("a rollout is unscored: %s", plain(str(error)))
            return None
        self.result = score
        return score.value

    def compute_step_rewards(self) -> list[float | None]:
        """Return the reward of each step, None where there is none.

        A recipe that does not reward turns has its reward at the last step.
        """
        steps = len(self.trajectory)
        if not isinstance(self.result, Score):
            return [None] * steps
        return list(turn_rewards(self.result.turns, self.result.value, steps) or ())

    def metadata(self) -> dict[str, Any]:
        """Return the components as `recipe/component`, or the reason of an unscored rollout."""
        if isinstance(self.result, Score):
            return {**component_metrics(self.recipe.scorer.reward.name, self.result)}
        return {} if self.result is None else {UNSCORED: str(self.result)}

    def _rollout(self, trajectory: Sequence[tuple[Any, Any]]) -> Rollout | RolloutError:
        return read_rollout(
            self.row,
            self.row.get("prompt"),
            turns=[self._turn(action, observation) for action, observation in trajectory],
            response_prefix=self.row.get("response_prefix"),
            finish_reason=getattr(trajectory[-1][1], "finish_reason", None) or "stop",
        )
