"""Components of a recipe as reward functions of TRL, which GDPO normalizes one by one.

reward = RagReward("search-r1", settings={"scheme": "format"})
args = GRPOConfig(multi_objective_aggregation="normalize_then_sum", reward_weights=[1, 0.2], …)
trainer = GRPOTrainer("model", reward_funcs=reward.components("outcome", "format"), args=args)
reward.bind(trainer)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rag_rewards.groups import Groups, group_by_position
from rag_rewards_adapters.component_rewards import (
    Column,
    SharedPass,
    check_components,
    exactly_equal,
    share_without_signal,
)

if TYPE_CHECKING:
    from rag_rewards_adapters.trl.reward import RagReward


def component_rewards(reward: RagReward, names: Sequence[str]) -> list[ComponentReward]:
    """Return one reward function for each component. Raises UsageError as `components` does."""
    every = reward.scorer.reward.component_names
    components = check_components(names, every, reward.std_floor)
    shared = SharedPass()
    return [ComponentReward(reward, name, components, shared) for name in components]


class ComponentReward:
    """A component of a RagReward as a reward function: one value per completion.

    All components of one `RagReward.components` share one scoring pass. A completion that is
    unscored, or has no value of the component, gets None, which TRL excludes. TRL logs the values
    as `rewards/RECIPE/COMPONENT/mean`. The metric `RECIPE/flat_groups` is the share of groups in
    which no component differs, because with `normalize_then_sum` TRL's `frac_reward_zero_std`
    describes the whole batch.
    """

    def __init__(
        self, reward: RagReward, component: str, components: tuple[str, ...], shared: SharedPass
    ) -> None:
        self.reward = reward
        self.component = component
        self.__name__ = f"{reward.__name__}/{component}"
        self._components = components
        self._shared = shared

    def __call__(self, **batch: Any) -> Column:
        """Return the values of a batch: prompts, completions, completion_ids and the columns."""
        completions = batch["completions"]
        return self._shared.take(self.component, completions, lambda: self._score(batch))

    def _score(self, batch: dict[str, Any]) -> dict[str, Column]:
        self.reward(**batch)
        scores = self.reward.last_scores
        groups = self._groups(len(scores))
        columns = {
            name: exactly_equal([s.components.get(name) if s else None for s in scores], groups)
            for name in self._components
        }
        if groups and (log_metric := batch.get("log_metric")) is not None:
            log_metric(f"{self.reward.__name__}/flat_groups", share_without_signal(columns, groups))
        return columns

    def _groups(self, size: int) -> Groups:
        """Return the groups of the batch, none if a rank does not have whole groups."""
        group_size = self.reward.group_size
        if group_size is None or size % group_size:
            return []
        return group_by_position(size, group_size)
