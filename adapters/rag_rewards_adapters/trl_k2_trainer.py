"""TRL's GRPOTrainer with the KL penalty k2, which ARENA uses. TRL itself has only k3.

    from rag_rewards_adapters.trl_k2_trainer import K2Trainer

    args = GRPOConfig(beta=0.04, use_bias_correction_kl=False)
    trainer = K2Trainer("model", reward_funcs=reward, args=args, ...)

For a token that the policy has made very unlikely, k3 = exp(d) − d − 1 with d = log π_ref − log π
grows exponentially, and k2 = ½ d² does not: for d = 10, k3 is 22,015 and k2 is 50.
"""

from __future__ import annotations

from typing import Any

import torch
from trl import GRPOTrainer

from rag_rewards.errors import UsageError
from rag_rewards_adapters.kl_penalty import PenaltyTrainer
from rag_rewards_adapters.trl_turn_trainer import TurnGRPOTrainer

_PER_RESPONSE = ("grpo", "sapo")
_PER_TOKEN_OF_STEP = ("dapo", "cispo", "vespo")
LOSS_TYPES = (*_PER_RESPONSE, *_PER_TOKEN_OF_STEP, "bnpo", "dr_grpo", "luspo")
"""The loss types whose aggregation over tokens `token_weights` reproduces."""


class K2Trainer(PenaltyTrainer, GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer whose KL penalty is β · ½ (log π_ref − log π)² for each token.

    The penalty has the weights of the tokens in TRL's own loss (`loss_type`, masks, gradient
    accumulation) and uses the log-probabilities of TRL's forward pass. The logged metric `kl` is
    the mean of the penalty over the tokens, in nats. Source: ARENA, section 3.2.

    Raises UsageError if β is not 0 and `use_bias_correction_kl` is True (the default of TRL), which
    multiplies the penalty by the importance ratio, and for a loss type that is not in LOSS_TYPES.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.beta and self.args.use_bias_correction_kl:
            raise UsageError(
                "use_bias_correction_kl=True corrects the penalty k3 of GRPOTrainer: set "
                "use_bias_correction_kl=False for k2"
            )
        if self.loss_type not in LOSS_TYPES:
            raise UsageError(
                f"loss_type={self.loss_type!r} is not supported with the penalty k2: "
                f"choose one of {', '.join(LOSS_TYPES)}"
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
