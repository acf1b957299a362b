"""verl's reward manager `rag_rewards`: rollouts by their tokens, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.rollout import Rollout
from rag_rewards.rows.columns import response_prefix_of, to_builtins
from rag_rewards_adapters.verl import BYPASSED
from rag_rewards_adapters.verl_rows import (
    ended,
    group_scope,
    header_of,
    judges,
    last_turn,
    numbers_of,
    options_of,
    rollout_from,
    said,
    score_of,
    scorer_of,
    template_of,
)

_ENOUGH = 32
"""Tokens at a prompt's end in which a tag that it opens stands."""


class RagRewardManager(RewardManagerBase):  # type: ignore[misc]
    """Scores with the recipe of `reward.custom_reward_function.reward_kwargs`.

    UsageError at construction for settings that cannot be used. A rollout that cannot be scored
    raises, which verl counts as a failed rollout. Recipes of group scope raise for every rollout:
    the agent loop `rag_group` scores those, and whoever arrives here went around it.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        options = options_of(config)
        self.template = template_of(config)
        self.room = int(config.actor_rollout_ref.rollout.response_length)
        # A recipe of group scope asks nobody here, so nothing is loaded for it.
        self.scorer = None if group_scope(options) else scorer_of(options, template=self.template)
        self.name = str(options.get("recipe") or "curriculum")
        self.judged = self.scorer is not None and judges(self.scorer.reward)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """`reward_score`, and the components (with `acc`) as `reward_extra_info`."""
        if self.scorer is None:
            raise UsageError(BYPASSED.format(name=self.name))
        loop = asyncio.get_running_loop()
        item = data[-1:][0]  # of several outputs the last is the rollout
        if self.scorer.asks:
            rollout = await loop.run_in_executor(None, self.rollout, item)
            results = await self.scorer.score_each_async([rollout])
        else:
            results = await loop.run_in_executor(None, self._score, item)
        score = score_of(results[0], self.scorer.models)
        return {
            "reward_score": float(score.value or 0.0),
            "reward_extra_info": numbers_of(score, self.judged),
        }

    def _score(self, item: Any) -> Any:
        return self.scorer.score_each([self.rollout(item)])  # type: ignore[union-attr]

    def rollout(self, item: Any) -> Rollout | RolloutError:
        """A row of verl's batch as a rollout, or the error of its row."""
        columns = item.non_tensor_batch
        prompt, response = _tokens(item.batch)
        text = said(self.tokenizer, response)
        turns = to_builtins(columns.get("__num_turns__")) or 0
        try:
            if turns > 2:  # the question and an answer are two: there were tools in between
                happened = self._after_tools(text)
            else:
                happened = self._answer(text, prompt, response, columns)
        except DataError as error:
            return _named(error, columns)
        cut = len(response) >= self.room and not ended(self.tokenizer, response)
        return rollout_from(columns, finish_reason="length" if cut else "stop", **happened)

    def _answer(self, text: str, prompt: Any, response: Any, columns: Any) -> dict[str, Any]:
        end = self.tokenizer.decode(prompt[-_ENOUGH:], skip_special_tokens=False)
        happened = {"response": text, "response_prefix": response_prefix_of(end)}
        if self._likelihood:
            happened |= {
                "prompt": to_builtins(columns.get("raw_prompt")),
                "prompt_token_ids": prompt,
                "response_token_ids": response,
            }
        return happened

    def _after_tools(self, text: str) -> dict[str, Any]:
        if self._likelihood:
            raise DataError(
                "has turns of tools, and a scoring server is shown a prompt and one response; the "
                "agent loop rag_group scores it with the policy's own rollout engine",
                "response",
            )
        return {
            "response": last_turn(text, self.header),
            "response_prefix": response_prefix_of(self.header),
        }

    @cached_property
    def header(self) -> str:
        """What the chat template writes before each turn of the model."""
        return header_of(self.tokenizer, self.template)

    @property
    def _likelihood(self) -> bool:
        return self.scorer is not None and self.scorer.models.policy is not None


def _tokens(batch: Any) -> tuple[list[int], list[int]]:
    """Prompt and response of a row, without padding."""
    prompt, response, mask = batch["prompts"], batch["responses"], batch["attention_mask"]
    before, after = mask[: -len(response)].bool(), mask[-len(response) :].bool()
    return prompt[before].tolist(), response[after].tolist()


def _named(error: RolloutError, columns: Mapping[str, Any]) -> RolloutError:
    """The error, with the id of its row in the data set."""
    extra = columns.get("extra_info")
    known = extra if isinstance(extra, Mapping) else {}
    row = known.get("id", known.get("index"))
    error.row = None if row is None else str(row)
    return error
