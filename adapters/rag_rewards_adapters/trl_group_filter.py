"""TRL's GRPOTrainer with a loss over the groups with a signal only.

    from rag_rewards_adapters.trl_group_filter import FilteredGRPOTrainer

    trainer = FilteredGRPOTrainer("model", reward_funcs=reward, args=args, ...)

`GroupFilter` is a part of a trainer: `class Own(GroupFilter, K2Trainer)` adds it to another one.
"""

from __future__ import annotations

from typing import Any

import torch
from trl import GRPOTrainer

from rag_rewards.errors import UsageError

_PER_TOKEN_OF_STEP = ("dapo", "cispo", "vespo")
LOSS_TYPES = ("grpo", "dr_grpo", "sapo", "luspo", *_PER_TOKEN_OF_STEP)
"""The loss types whose mean over the remaining groups is exact."""


class GroupFilter:
    """A part of a GRPOTrainer that removes groups without signal from the loss.

    In a group without signal, the rewards of all scored completions are equal: the advantages are
    0, but the completions count in the mean of the loss, and have a KL penalty and an entropy
    bonus. With this part, the loss is the mean over the other groups, as if the groups without
    signal had not been sampled. No prompts are sampled in their place. With an advantage for each
    turn, a group has no signal if all of its advantages are 0.

    The logged `groups_without_signal` is the share of these groups. Evaluations are unchanged. With
    `dapo`, `cispo` and `vespo`, an entropy bonus stays a mean over all batches of the step.

    Raises UsageError for a loss type that is not in LOSS_TYPES.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        trainer: Any = self
        if trainer.loss_type not in LOSS_TYPES:
            raise UsageError(
                f"loss_type={trainer.loss_type!r} normalizes each batch by its own tokens, so that "
                f"groups cannot be removed: choose one of {', '.join(LOSS_TYPES)}"
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
