"""verl's reward manager `rag_rewards`: scores rollouts one at a time, with their token ids."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.rollout import Rollout
from rag_rewards.rows.columns import response_prefix_of, to_builtins
from rag_rewards_adapters.reading import last_turn, opened_tag, response_text, turn_header
from rag_rewards_adapters.scoring import SingleRecipe
from rag_rewards_adapters.verl.config import GROUP_LOOP, NEEDS_GROUP_LOOP, RewardOptions
from rag_rewards_adapters.verl.credit import reads_written_values
from rag_rewards_adapters.verl.rows import (
    RolloutReader,
    extra_numbers,
    with_row_id,
)


class RagRewardManager(RewardManagerBase):  # type: ignore[misc]
    """Scores with the recipe of `reward.custom_reward_function.reward_kwargs`.

    Raises UsageError and RolloutError at construction for invalid settings, for a model that is not
    set, and for a row of the data files that cannot be scored (`RewardOptions.of_training`). A
    rollout that cannot be scored raises RolloutError, which verl counts as a failed rollout. A
    recipe of group scope raises UsageError for every rollout, because the agent loop `rag_group`
    has to score it.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        options = RewardOptions.of_training(config)
        self.name = options.reward.name
        rollout = config.actor_rollout_ref.rollout
        self.reader = RolloutReader(tokenizer, rollout, options.prompt.template)
        self.estimator = str(config.get("algorithm", {}).get("adv_estimator") or "")
        # The agent loop scores recipes of group scope, so no model is loaded for them here.
        self.recipe: SingleRecipe | None = None
        if options.reward.scope != "group":
            self.recipe = SingleRecipe(
                options.scorer(),
                "verl",
                for_groups=f"set {GROUP_LOOP}",
                for_stages="",
                way_to_turn_credit="use the agent loop rag_group with a rag_turn_ estimator",
            )

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Return `reward_score`, and the components (with `acc`) as `reward_extra_info`."""
        if self.recipe is None:
            raise UsageError(NEEDS_GROUP_LOOP.format(name=self.name))
        if reads_written_values(self.estimator):
            raise UsageError(
                f"algorithm.adv_estimator={self.estimator} reads values that the agent loop "
                f"rag_group writes: set {GROUP_LOOP}"
            )
        item = data[-1:][0]  # if there are several outputs, the last one is the rollout
        loop = asyncio.get_running_loop()
        rollout = await loop.run_in_executor(None, self.rollout, item)
        score = await self.recipe.score(rollout)
        return {
            "reward_score": float(score.value or 0.0),
            "reward_extra_info": extra_numbers(score, self.recipe.scorer),
        }

    def rollout(self, item: Any) -> Rollout | RolloutError:
        """Return a row of verl's batch as a rollout, or its error."""
        columns = item.non_tensor_batch
        prompt, response = _tokens(item.batch)
        text = response_text(self.tokenizer, response)
        turns = to_builtins(columns.get("__num_turns__")) or 0
        fields: dict[str, Any] = {"response": text}
        if turns > 2:  # a question and an answer are two turns
            try:
                fields = self._last_turn_fields(text)
            except DataError as error:
                return with_row_id(error, columns)
        else:
            fields["response_prefix"] = opened_tag(self.tokenizer, prompt)
            if self._has_policy:
                fields |= {"prompt_token_ids": prompt, "response_token_ids": response}
        return self.reader.rollout(columns, prompt, response, fields)

    def _last_turn_fields(self, text: str) -> dict[str, Any]:
        if self.recipe is not None and any(r.needs_turns for r in self.recipe.scorer.recipes):
            raise DataError(
                f"has tool turns, which {self.name} reads, and a reward worker gets no mask of "
                "the tokens of the model: use the agent loop rag_group",
                "response",
            )
        if self._has_policy:
            raise DataError(
                "has tool turns, and a scoring server reads a prompt and one response: use the "
                "agent loop rag_group, which scores it with the policy's own rollout engine",
                "response",
            )
        return {
            "response": last_turn(text, self.header),
            "response_prefix": response_prefix_of(self.header),
        }

    @cached_property
    def header(self) -> str:
        """The text that the chat template writes before each turn of the model."""
        return turn_header(self.tokenizer, self.reader.template)

    @property
    def _has_policy(self) -> bool:
        return self.recipe is not None and self.recipe.scorer.models.policy is not None


def _tokens(batch: Any) -> tuple[list[int], list[int]]:
    """Return the token ids of the prompt and the response of a row, without padding."""
    prompt, response, mask = batch["prompts"], batch["responses"], batch["attention_mask"]
    prompt_mask, response_mask = mask[: -len(response)].bool(), mask[-len(response) :].bool()
    return prompt[prompt_mask].tolist(), response[response_mask].tolist()
