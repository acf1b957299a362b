"""TRL's GRPOTrainer with an advantage for each turn. TRL itself has one for each completion.

from rag_rewards_adapters.credit_choice import credit_of
from rag_rewards_adapters.trl import RagReward
from rag_rewards_adapters.trl_turn_trainer import TurnGRPOTrainer

args = GRPOConfig(scale_rewards="none", ...)
trainer = TurnGRPOTrainer("model", reward_funcs=RagReward("my_rewards:recipe"), args=args,
                          credit="return", tools=[search], ...)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from rag_rewards.errors import UsageError
from rag_rewards.groups import Groups, group_by_position
from rag_rewards.rollout import Rollout, Score
from rag_rewards.training.credit import Credit, spread
from rag_rewards.training.credit.gigpo import anchors_of
from rag_rewards_adapters.credit_choice import credit_of
from rag_rewards_adapters.token_masks import Span, runs
from rag_rewards_adapters.trl import RagReward
from rag_rewards_adapters.trl_trainer import check_scaling


class TurnGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer whose loss has the advantage of its turn for each own token of the policy.

    reward_funcs    one RagReward, which the trainer binds
    credit          a credit method (`return`, `igpo`, `mt_grpo`, `gigpo`, `gdpo`, or a Credit).
                    Default: the settings `credit` of the recipe. `group`, and a recipe without
                    such settings: all turns share the advantage of TRL
    credit_options  options of the method, such as {"norm": "separate"}

    The rollouts come from `tools`, an environment or a `rollout_func`. The own tokens are those
    with 1 in TRL's mask of tool results (`env_mask` of a `rollout_func`). Tokens of tools and
    unscored completions have the advantage 0. The logged `credit/zero_groups` is the share of
    groups in which all advantages are 0. TRL's table of completions still contains the advantages
    of the sums.

    Raises UsageError for several rewards, and with a credit method for settings that would
    normalize twice: `scale_rewards` must be "none".
    """

    def __init__(
        self,
        *arguments: Any,
        credit: Credit | str | None = None,
        credit_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        if len(self.reward_funcs) != 1 or not isinstance(self.reward_funcs[0], RagReward):
            raise UsageError(
                "TurnGRPOTrainer requires one reward, a RagReward: combine several with "
                "rag_rewards.compose"
            )
        self.reward: RagReward = self.reward_funcs[0]
        floor = self.reward.std_floor
        self.credit = credit_of(credit, credit_options, self.reward.scorer, floor)
        if self.credit is not None:
            check_scaling(self.args, f"credit {self.credit.method!r}")
        self.reward.has_turn_credit = True
        self.reward.bind(self)

    def _generate(self, prompts: list[Any]) -> Any:
        """Generate, and add the ids of the prompts and the mask to the columns of the reward."""
        generated = list(super()._generate(prompts))
        prompt_ids, completion_ids, tool_mask = generated[:3]
        mask = tool_mask or [[1] * len(ids) for ids in completion_ids]
        generated[5] = {**generated[5], "prompt_token_ids": prompt_ids, "response_mask": mask}
        self._own_tokens = mask
        return tuple(generated)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        if self.credit is None:
            return output
        advantages = self._turn_advantages(self.credit)
        length = output["completion_ids"].shape[1]
        rows = [
            _of_tokens(own, spans, length)
            for own, spans in zip(advantages, self._spans(), strict=True)
        ]
        shared = output["advantages"]
        output["advantages"] = torch.tensor(rows, dtype=shared.dtype, device=shared.device)
        return output

    def _turn_advantages(self, credit: Credit) -> list[list[float] | None]:
        """Return the advantages of the turns of this rank. A group may be on several ranks."""
        rollouts = self.reward.last_rollouts
        local = [
            (None, None)
            if score is None
            else (Score(score.value, turns=score.turns), _anchors(score, rollout))
            for score, rollout in zip(self.reward.last_scores, rollouts, strict=True)
        ]
        everywhere = gather_object(local)
        training = self.model.training
        size = self.num_generations if training else self.num_generations_eval
        groups = group_by_position(len(everywhere), size)
        advantages = credit(
            [score for score, _ in everywhere], groups, [anchors for _, anchors in everywhere]
        )
        mode = "train" if training else "eval"
        self._metrics[mode]["credit/zero_groups"].append(_zero_share(advantages, groups))
        first = self.accelerator.process_index * len(local)
        return advantages[first : first + len(local)]

    def _spans(self) -> list[list[Span]]:
        """Return the spans of the turns of each completion."""
        result = []
        for rollout, mask in zip(self.reward.last_rollouts, self._own_tokens, strict=True):
            spans = [turn.token_span for turn in rollout.steps()] if rollout else []
            known = [span for span in spans if span is not None]
            result.append(known if known and len(known) == len(spans) else runs(mask))
        return result


def _anchors(score: Score, rollout: Rollout | None) -> list[str]:
    """Return the state before each turn of a score."""
    return anchors_of(rollout.steps()) if score.turns and rollout is not None else [""]


def _of_tokens(
    advantages: Sequence[float] | None, spans: Sequence[Span], length: int
) -> list[float]:
    """Return the advantages of the tokens of a completion, 0 for an unscored one."""
    if advantages is None:
        return [0.0] * length
    if len(advantages) == 1:  # the turns of a reward without turn entries share one advantage
        advantages = [advantages[0]] * len(spans)
    return spread(advantages, spans, length)


def _zero_share(advantages: Sequence[Sequence[float] | None], groups: Groups) -> float:
    zeros = [not any(any(advantages[i] or ()) for i in group) for group in groups]
    return sum(zeros) / len(zeros)
