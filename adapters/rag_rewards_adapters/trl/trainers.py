"""TRL's GRPOTrainer with an advantage for each turn, with the KL penalty k2, and without groups
without signal. They import TRL.

    from rag_rewards_adapters.trl import K2Trainer, RagReward, TurnGRPOTrainer

    args = GRPOConfig(scale_rewards="none", ...)
    trainer = TurnGRPOTrainer("model", reward_funcs=RagReward("my_rewards:recipe"), args=args,
                              credit="return", tools=[search], ...)

    args = GRPOConfig(beta=0.04, use_bias_correction_kl=False)
    trainer = K2Trainer("model", reward_funcs=reward, args=args, ...)

`GroupFilter` is a part of a trainer: `class Own(GroupFilter, K2Trainer)` adds it to another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from rag_rewards.errors import UsageError
from rag_rewards.groups import Groups, group_by_position
from rag_rewards.rollout import Score
from rag_rewards.training.credit import Credit
from rag_rewards_adapters.kl_penalty import PenaltyTrainer
from rag_rewards_adapters.scoring import credit_of, token_values, turn_anchors, turn_spans
from rag_rewards_adapters.trl.reward import RagReward
from rag_rewards_adapters.trl.trainer_settings import check_scaling

_PER_RESPONSE = ("grpo", "sapo")
_PER_TOKEN_OF_STEP = ("dapo", "cispo", "vespo")
K2_LOSS_TYPES = (*_PER_RESPONSE, *_PER_TOKEN_OF_STEP, "bnpo", "dr_grpo", "luspo")
"""The loss types whose aggregation over tokens `token_weights` reproduces."""
FILTER_LOSS_TYPES = ("grpo", "dr_grpo", "sapo", "luspo", *_PER_TOKEN_OF_STEP)
"""The loss types whose mean over the groups with a signal is exact."""


# --- turns -------------------------------------------------------------------------------------


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
        reward = self.reward
        turns = map(turn_spans, reward.last_scores, reward.last_rollouts, self._own_tokens)
        rows = [
            token_values(own, spans, length) for own, spans in zip(advantages, turns, strict=True)
        ]
        shared = output["advantages"]
        output["advantages"] = torch.tensor(rows, dtype=shared.dtype, device=shared.device)
        return output

    def _turn_advantages(self, credit: Credit) -> list[list[float] | None]:
        """Return the advantages of the turns of this rank. A group may be on several ranks."""
        local = [
            (score and Score(score.value, turns=score.turns), turn_anchors(score, rollout))
            for score, rollout in zip(
                self.reward.last_scores, self.reward.last_rollouts, strict=True
            )
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


def _zero_share(advantages: Sequence[Sequence[float] | None], groups: Groups) -> float:
    zeros = [not any(any(advantages[i] or ()) for i in group) for group in groups]
    return sum(zeros) / len(zeros)


# --- the KL penalty k2 -------------------------------------------------------------------------


class K2Trainer(PenaltyTrainer, GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer whose KL penalty is β · ½ (log π_ref − log π)² for each token.

    For a token that the policy has made very unlikely, TRL's k3 = exp(d) − d − 1 with
    d = log π_ref − log π grows exponentially, and k2 = ½ d² does not: for d = 10, k3 is 22,015 and
    k2 is 50.

    The penalty has the weights of the tokens in TRL's own loss (`loss_type`, masks, gradient
    accumulation) and uses the log-probabilities of TRL's forward pass. The logged metric `kl` is
    the mean of the penalty over the tokens, in nats. Source: ARENA, section 3.2.

    Raises UsageError if β is not 0 and `use_bias_correction_kl` is True (the default of TRL), which
    multiplies the penalty by the importance ratio, and for a loss type outside of K2_LOSS_TYPES.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.beta and self.args.use_bias_correction_kl:
            raise UsageError(
                "use_bias_correction_kl=True corrects the penalty k3 of GRPOTrainer: set "
                "use_bias_correction_kl=False for k2"
            )
        if self.loss_type not in K2_LOSS_TYPES:
            raise UsageError(
                f"loss_type={self.loss_type!r} is not supported with the penalty k2: "
                f"choose one of {', '.join(K2_LOSS_TYPES)}"
            )

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        with self.own_loss():
            loss: torch.Tensor = super()._compute_loss(model, inputs)
        logps = self.pop_policy_logps()
        if self.beta == 0.0:
            return loss
        mask = _loss_mask(inputs)
        divergence = self.penalty(logps, inputs["ref_per_token_logps"]) * mask
        self._log_divergence(divergence.detach().sum(), mask.sum())
        return loss + self.beta * (divergence * token_weights(self, inputs, mask)).sum()

    def _log_divergence(self, total: torch.Tensor, tokens: torch.Tensor) -> None:
        totals = self.accelerator.reduce(torch.stack([total, tokens.float()]), reduction="sum")
        mode = "train" if self.model.training else "eval"
        self._metrics[mode]["kl"].append((totals[0] / totals[1].clamp(min=1.0)).item())


class K2TurnTrainer(K2Trainer, TurnGRPOTrainer):
    """A TurnGRPOTrainer, with an advantage for each turn, whose KL penalty is that of K2Trainer."""


def _loss_mask(inputs: Any) -> torch.Tensor:
    """Return the mask of the tokens in the loss, which excludes the results of tools."""
    mask: torch.Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask


def token_weights(trainer: Any, inputs: Any, mask: torch.Tensor) -> torch.Tensor:
    """Return the weight of a token in the loss of one batch, which depends on the loss type.

    The shape is () or (batch, 1). The weights of TRL 1.16, `GRPOTrainer._compute_loss`:

    grpo, sapo           1 / (tokens of the response × responses)
    bnpo                 1 / tokens of the batch
    dr_grpo              1 / (responses × max_completion_length)
    luspo                1 / responses
    dapo, cispo, vespo   1 / tokens of the step, over all processes

    In training, gradient accumulation divides them further.
    """
    responses, training = mask.shape[0], trainer.model.training
    accumulation = trainer.current_gradient_accumulation_steps if training else 1.0
    if trainer.loss_type in _PER_TOKEN_OF_STEP:
        tokens = inputs["num_items_in_batch"].clamp(min=1.0) / trainer.accelerator.num_processes
        # TRL counts the tokens of a generation, which can serve several steps.
        steps = accumulation / trainer.args.steps_per_generation if training else 1.0
        return 1.0 / (tokens * steps)
    if trainer.loss_type in _PER_RESPONSE:
        weights = 1.0 / (mask.sum(-1, keepdim=True).clamp(min=1.0) * responses)
    elif trainer.loss_type == "bnpo":
        weights = 1.0 / mask.sum().clamp(min=1.0)
    elif trainer.loss_type == "dr_grpo":
        weights = torch.tensor(1.0 / (responses * trainer.max_completion_length))
    else:
        weights = torch.tensor(1.0 / responses)
    return weights / accumulation


# --- groups without signal ---------------------------------------------------------------------


class GroupFilter:
    """A part of a GRPOTrainer that removes groups without signal from the loss.

    In a group without signal, the rewards of all scored completions are equal: the advantages are
    0, but the completions count in the mean of the loss, and have a KL penalty and an entropy
    bonus. With this part, the loss is the mean over the other groups, as if the groups without
    signal had not been sampled. No prompts are sampled in their place. With an advantage for each
    turn, a group has no signal if all of its advantages are 0.

    The logged `groups_without_signal` is the share of these groups. Evaluations are unchanged. With
    `dapo`, `cispo` and `vespo`, an entropy bonus stays a mean over all batches of the step.

    Raises UsageError for a loss type that is not in FILTER_LOSS_TYPES.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        trainer: Any = self
        if trainer.loss_type not in FILTER_LOSS_TYPES:
            raise UsageError(
                f"loss_type={trainer.loss_type!r} normalizes each batch by its own tokens, so that "
                f"groups cannot be removed: choose one of {', '.join(FILTER_LOSS_TYPES)}"
            )
        self._group_rewards = torch.empty(0)

    def _calculate_rewards(self, *arguments: Any, **options: Any) -> Any:
        rewards = super()._calculate_rewards(*arguments, **options)  # type: ignore[misc]
        self._group_rewards = rewards
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        trainer: Any = self
        if not trainer.model.training:
            return output
        size, accelerator = trainer.num_generations, trainer.accelerator
        signals = self._signals(output["advantages"]).view(-1, size).any(dim=1)
        share = signals.float().mean()
        trainer._metrics["train"]["groups_without_signal"].append(1.0 - share.item())
        rows, first = len(output["advantages"]), accelerator.process_index
        has_signal = signals.repeat_interleave(size)[first * rows : (first + 1) * rows]
        mask = output.get("tool_mask", torch.ones_like(output["completion_mask"]))
        output["tool_mask"] = mask * has_signal.unsqueeze(1).to(mask.dtype)
        tokens = (output["completion_mask"] * output["tool_mask"]).sum()
        output["num_items_in_batch"] = accelerator.gather(tokens).sum()
        output["share_of_groups"] = share.clamp(min=1.0 / len(signals))
        return output

    def _signals(self, advantages: torch.Tensor) -> torch.Tensor:
        """Return whether each completion of all ranks belongs to a signal of its group."""
        trainer: Any = self
        if advantages.dim() == 2:
            signals: torch.Tensor = trainer.accelerator.gather((advantages != 0).any(dim=1))
            return signals
        rewards = self._group_rewards
        groups = rewards.view(-1, trainer.num_generations, rewards.shape[1])
        greatest = groups.nan_to_num(nan=-torch.inf).amax(dim=1, keepdim=True)
        least = groups.nan_to_num(nan=torch.inf).amin(dim=1, keepdim=True)
        return (greatest > least).expand_as(groups).any(dim=2).flatten()

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        loss: torch.Tensor = super()._compute_loss(model, inputs)  # type: ignore[misc]
        trainer: Any = self
        if "share_of_groups" not in inputs or trainer.loss_type in _PER_TOKEN_OF_STEP:
            return loss
        return loss / inputs["share_of_groups"]


class FilteredGRPOTrainer(GroupFilter, GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer with a loss over the groups with a signal only."""
