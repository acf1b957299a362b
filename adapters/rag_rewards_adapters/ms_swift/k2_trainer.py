"""ms-swift's GRPOTrainer with the KL penalty k2, which ARENA uses. ms-swift itself has only k3.

A plugin file (`--external_plugins plugin.py`) selects it:

    from rag_rewards_adapters.ms_swift import use_k2_penalty
    use_k2_penalty()
"""

from __future__ import annotations

from typing import Any

import torch
from swift.rlhf_trainers import GRPOTrainer

from rag_rewards.errors import UsageError
from rag_rewards_adapters.kl_penalty import PenaltyTrainer

_PER_RESPONSE = ("grpo", "sapo")
_PER_TOKEN_OF_STEP = ("dapo", "cispo")
LOSS_TYPES = (*_PER_RESPONSE, *_PER_TOKEN_OF_STEP, "bnpo", "dr_grpo")
"""The loss types whose aggregation over tokens this trainer reproduces."""


class K2Trainer(PenaltyTrainer, GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer whose KL penalty is β · ½ (log π_ref − log π)² for each token.

    The penalty is aggregated over tokens like ms-swift's own loss (`--loss_type`, masks) and uses
    the log-probabilities of its forward pass. The logged metric `kl` is the mean of the penalty
    over the tokens, in nats. Source: ARENA, section 3.2.

    Raises UsageError for options with which ms-swift does not add a penalty of each token to its
    loss: `--use_liger_kernel`, `--kl_in_reward true` and the loss types `real` and `fipo`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.use_liger_loss:
            raise UsageError("--use_liger_kernel computes k3: omit it to train with k2")
        if self.kl_in_reward:
            raise UsageError("--kl_in_reward true uses k1: omit it to train with k2")
        if self.loss_type not in LOSS_TYPES:
            raise UsageError(
                f"--loss_type {self.loss_type} is not supported with the penalty k2: choose one of "
                f"{', '.join(LOSS_TYPES)}"
            )

    def _compute_loss_and_metrics(
        self, model: Any, model_inputs: dict[str, Any], grpo_batch: Any
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        with self.own_loss():
            loss, metrics = super()._compute_loss_and_metrics(model, model_inputs, grpo_batch)
        logps = self.pop_policy_logps()
        if self.beta == 0.0:
            return loss, metrics
        mask = metrics["completion_mask"]
        divergence = self.penalty(logps, grpo_batch.ref_per_token_logps) * mask
        mean = divergence.detach().sum() / mask.sum().clamp(min=1.0)
        metrics["kl"] = self.accelerator.gather_for_metrics(mean).nanmean().item()
        return loss + self.beta * self._aggregate(divergence, mask, grpo_batch), metrics

    def _aggregate(self, values: torch.Tensor, mask: torch.Tensor, grpo_batch: Any) -> torch.Tensor:
        """Return the sum of masked values with the weights of ms-swift's loss of this loss type."""
        if self.loss_type in _PER_RESPONSE:
            return (values.sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
        if self.loss_type == "bnpo":
            return values.sum() / mask.sum().clamp(min=1.0)
        if self.loss_type == "dr_grpo":
            return values.sum() / (mask.shape[0] * self.max_completion_length)
        tokens = grpo_batch.num_items_in_batch / self.accelerator.num_processes
        scaled: torch.Tensor = self._undo_gradient_accumulation_scaling(values.sum() / tokens)
        return scaled
