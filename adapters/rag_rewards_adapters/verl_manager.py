"""verl's reward manager `rag_rewards`: scores rollouts one at a time, with their token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.rollout import Rollout, ScoreOrError
from rag_rewards.rows.columns import response_prefix_of, to_builtins
from rag_rewards.scorer import Scorer
from rag_rewards.training.turn_sums import TurnSums
from rag_rewards_adapters.response_text import (
    finish_reason,
    last_turn,
    opened_tag,
    response_text,
    turn_header,
)
from rag_rewards_adapters.verl import NEEDS_GROUP_LOOP
from rag_rewards_adapters.verl_config import (
    check_training,
    compares_groups,
    load_scorer,
    response_limit,
    reward_options,
    template_arguments,
)
from rag_rewards_adapters.verl_rows import (
    defines_correct,
    extra_numbers,
    rollout_from_row,
    valid_score,
)
from rag_rewards_adapters.verl_turns import GDPO, PREFIX


class RagRewardManager(RewardManagerBase):  # type: ignore[misc]
    """Scores with the recipe of `reward.custom_reward_function.reward_kwargs`.

    Raises UsageError and RolloutError at construction for invalid settings, for a model that is not
    set, and for a row of the data files that cannot be scored (`check_training`). A rollout that
    cannot be scored raises RolloutError, which verl counts as a failed rollout. A recipe of group
    scope raises UsageError for every rollout, because the agent loop `rag_group` has to score it.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        options = reward_options(config)
        check_training(config)
        self.template = template_arguments(config)
        self.name = str(options.get("recipe") or "curriculum")
        # The agent loop scores recipes of group scope, so no model is loaded for them here.
        self.scorer: Scorer | None = None
        self.estimator = str(config.get("algorithm", {}).get("adv_estimator") or "")
        self._sums = TurnSums("use the agent loop rag_group with a rag_turn_ estimator")
        if not compares_groups(options):
            self.scorer = load_scorer(options, template=self.template)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Return `reward_score`, and the components (with `acc`) as `reward_extra_info`."""
        if self.scorer is None:
            raise UsageError(NEEDS_GROUP_LOOP.format(name=self.name))
        if self.estimator == GDPO or self.estimator.startswith(PREFIX):
            raise UsageError(
                f"algorithm.adv_estimator={self.estimator} reads values that the agent loop "
                "rag_group writes: set "
                "actor_rollout_ref.rollout.agent.default_agent_loop=rag_group"
            )
        item = data[-1:][0]  # if there are several outputs, the last one is the rollout
        score = valid_score(await self._score(self.scorer, item), self.scorer.models)
        self._sums.check([score])
        return {
            "reward_score": float(score.value or 0.0),
            "reward_extra_info": extra_numbers(
                score, defines_correct(self.scorer.reward), self.scorer.decides_answers
            ),
        }

    async def _score(self, scorer: Scorer, item: Any) -> ScoreOrError:
        """Score a row of verl's batch. Work without models is done in a thread."""
        loop = asyncio.get_running_loop()
        if not scorer.has_models:
            return await loop.run_in_executor(
                None, lambda: scorer.score_each([self.rollout(item)])[0]
            )
        rollout = await loop.run_in_executor(None, self.rollout, item)
        return (await scorer.score_each_async([rollout]))[0]

    def rollout(self, item: Any) -> Rollout | RolloutError:
        """Return a row of verl's batch as a rollout, or its error."""
        columns = item.non_tensor_batch
        prompt, response = _tokens(item.batch)
        text = response_text(self.tokenizer, response)
        turns = to_builtins(columns.get("__num_turns__")) or 0
        try:
            if turns > 2:  # a question and an answer are two turns
                fields = self._last_turn_fields(text)
            else:
                fields = self._response_fields(text, prompt, response)
            fields["prompt"] = to_builtins(columns.get("raw_prompt"))
        except DataError as error:
            return _with_row(error, columns)
        limit = response_limit(self.config.actor_rollout_ref.rollout, len(prompt))
        reason = finish_reason(self.tokenizer, response, limit)
        return rollout_from_row(columns, finish_reason=reason, **fields)

    def _response_fields(self, text: str, prompt: list[int], response: list[int]) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "response": text,
            "response_prefix": opened_tag(self.tokenizer, prompt),
        }
        if self._has_policy:
            fields |= {"prompt_token_ids": prompt, "response_token_ids": response}
        return fields

    def _last_turn_fields(self, text: str) -> dict[str, Any]:
        if self.scorer is not None and any(recipe.needs_turns for recipe in self.scorer.recipes):
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
        return turn_header(self.tokenizer, self.template)

    @property
    def _has_policy(self) -> bool:
        return self.scorer is not None and self.scorer.models.policy is not None


def _tokens(batch: Any) -> tuple[list[int], list[int]]:
    """Return the token ids of the prompt and the response of a row, without padding."""
    prompt, response, mask = batch["prompts"], batch["responses"], batch["attention_mask"]
    prompt_mask, response_mask = mask[: -len(response)].bool(), mask[-len(response) :].bool()
    return prompt[prompt_mask].tolist(), response[response_mask].tolist()


def _with_row(error: RolloutError, columns: Mapping[str, Any]) -> RolloutError:
    """Return the error with the id of its row in the data set."""
    extra = columns.get("extra_info")
    fields = extra if isinstance(extra, Mapping) else {}
    row = fields.get("id", fields.get("index"))
    error.row = None if row is None else str(row)
    return error
