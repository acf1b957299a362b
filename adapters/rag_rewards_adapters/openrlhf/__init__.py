"""OpenRLHF: a reward function in the trainer's process, for `--reward.remote_url rewards.py`.

    from rag_rewards_adapters.openrlhf import reward_function
    reward_func = reward_function(recipe="arena")

The label of the data set (`--data.label_key label`) is the gold row as a JSON string, which
`rag-rewards prepare --trainer openrlhf` writes. `rag-rewards serve` is the same recipe behind a
URL: `--reward.remote_url http://host:8000/openrlhf`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from rag_rewards.errors import RolloutError, UsageError, plain
from rag_rewards.loading import RecipeSource
from rag_rewards.rollout import Score
from rag_rewards.scorer import Scorer
from rag_rewards.training.openrlhf import (
    SampleRequest,
    raise_failure,
    response_of,
    rollouts_of,
    unsupported_reason,
)
from rag_rewards.training.turn_sums import TurnSums
from rag_rewards_adapters.scoring import load

log = logging.getLogger("rag_rewards")


class RewardFunction:
    """A recipe as a function of queries, prompts and labels (lists of one item since 0.9.1).

    `error_value` is the reward of an invalid row, because the trainer ignores exceptions and
    continues without a reward. Such a rollout is counted in `failed`, logged, and marked as
    `rag_rewards_error`. Without `error_value`, the error is raised. The failure of a model
    (BackendError) is always raised, because it would replace only the rewards of those rollouts of
    a prompt that need the model.
    """

    def __init__(self, scorer: Scorer, error_value: float | None = None) -> None:
        if reason := unsupported_reason(scorer.reward):
            raise UsageError(reason)
        self.scorer, self.error_value = scorer, error_value
        self.failed = 0
        self._sums = TurnSums()

    def __call__(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any
    ) -> dict[str, Any]:
        """Return `rewards`, `scores` and `extra_logs`: numbers for one query, lists for several."""
        rollouts = rollouts_of(SampleRequest(list(queries), list(prompts), list(labels)))
        results = self.scorer.score_each(rollouts)
        self._sums.check([result for result in results if isinstance(result, Score)])
        errors = [result for result in results if isinstance(result, RolloutError)]
        if errors:
            self.failed += len(errors)
            reason = plain(str(errors[-1]))
            log.error("%d rollouts are unscored so far; last error: %s", self.failed, reason)
        raise_failure(results)
        names = self.scorer.reward.component_names
        answer = response_of(results, names, self.error_value, self.scorer.decides_answers)
        return {
            "rewards": answer.rewards,
            "scores": answer.scores,
            "extra_logs": answer.extra_logs,
        }


def reward_function(
    recipe: RecipeSource | None = None, *, error_value: float | None = None, **options: Any
) -> RewardFunction:
    """Return a reward function for a recipe in any form, with the options of its models.

    >>> reward = reward_function(recipe="naive-grpo")
    >>> reward(["Q?<think></think><answer>a</answer>"], ["Q?"], ['{"answers": "a"}'])["rewards"]
    2.0
    """
    return RewardFunction(load(recipe, options), error_value)
