"""A loss without the groups without signal, against TRL's loss on the other groups alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rag_rewards_adapters.trl import RagReward
from rag_rewards_adapters.trl.trainers import (
    FILTER_LOSS_TYPES,
    FilteredGRPOTrainer,
    GroupFilter,
    K2Trainer,
    TurnGRPOTrainer,
)
from test_trl_k2 import gradient
from trl import GRPOTrainer
from trl_runs import config, make_model, make_tokenizer, rows, says

from rag_rewards.errors import UsageError

RESPONSES = ("Seine", "the Seine", "It is the Rhone, which is long", "no idea")
GROUP = len(RESPONSES)
ARGS = {
    "per_device_train_batch_size": 3 * GROUP,
    "num_generations": GROUP,
    "beta": 0.04,
    "use_bias_correction_kl": False,
    "max_steps": 2,
    "scale_rewards": "none",
}


def length(prompts: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float | None]:
    """Return the length for a third of the prompts, and equal rewards or none for the others."""
    values: list[float | None] = []
    for prompt, ids in zip(prompts, completion_ids, strict=True):
        third = int(prompt[-1]["content"].rstrip(")").rpartition("(")[2]) % 3
        values.append([float(len(ids)), 11.1, None][third])
    return values


def run(folder: Any, trainer_class: Any, reward: Any = length, **args: Any) -> Any:
    model = str(folder / "model")  # TRL reads the reference model from the same place
    make_model("qwen2").save_pretrained(model)
    trainer = trainer_class(
        model=model,
        reward_funcs=reward,
        args=config(folder, **ARGS | {"shuffle_dataset": False} | args),
        train_dataset=rows(12),
        processing_class=make_tokenizer(),
        rollout_func=says(*RESPONSES),
    )
    if isinstance(reward, RagReward):
        reward.bind(trainer)
    trainer.train()
    return trainer


def logged(trainer: Any, name: str) -> list[float]:
    return [row[name] for row in trainer.state.log_history if name in row]


def alone(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the completions of the groups with a signal, as if TRL had sampled no others."""
    kept = inputs["tool_mask"].any(dim=1)
    part = {
        name: value[kept] if value.ndim else value
        for name, value in inputs.items()
        if name not in ("tool_mask", "share_of_groups")
    }
    return part | {"num_items_in_batch": part["completion_mask"].sum()}


@pytest.mark.parametrize(
    ("base", "loss_type"),
    [
        *((GRPOTrainer, name) for name in FILTER_LOSS_TYPES),
        (K2Trainer, "grpo"),
        (K2Trainer, "dapo"),
    ],
)
def test_the_loss_is_that_of_the_other_groups_alone(
    tmp_path: Any, base: Any, loss_type: str
) -> None:
    losses = []

    class Compared(GroupFilter, base):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
            loss: torch.Tensor = super()._compute_loss(model, inputs)
            expected = base._compute_loss(self, model, alone(inputs))
            assert 0 < inputs["tool_mask"].any(dim=1).sum() < len(inputs["tool_mask"])
            torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-7)
            torch.testing.assert_close(
                gradient(loss, model), gradient(expected, model), rtol=1e-3, atol=1e-6
            )
            losses.append(loss.item())
            return loss

    trainer = run(tmp_path, Compared, loss_type=loss_type)
    assert len(losses) == 2
    assert logged(trainer, "groups_without_signal") == pytest.approx([2 / 3, 2 / 3])


def test_a_step_without_any_signal_changes_no_weight(tmp_path: Any) -> None:
    def equal(prompts: list[Any], **_: Any) -> list[float]:
        return [0.1] * len(prompts)

    trainer = run(tmp_path, FilteredGRPOTrainer, equal, learning_rate=0.1)
    assert logged(trainer, "groups_without_signal") == [1.0, 1.0]
    assert logged(trainer, "loss") == [0.0, 0.0]
    start = type(trainer.model).from_pretrained(tmp_path / "model")
    for before, after in zip(start.parameters(), trainer.model.parameters(), strict=True):
        torch.testing.assert_close(before, after, rtol=0, atol=0)


def test_groups_of_several_batches_of_a_step(tmp_path: Any) -> None:
    """Each batch has one group. The share is that of the step."""
    args = {"per_device_train_batch_size": GROUP, "gradient_accumulation_steps": 3}
    losses = {}
    for loss_type in ("grpo", "dapo"):
        trainer = run(tmp_path / loss_type, FilteredGRPOTrainer, loss_type=loss_type, **args)
        assert logged(trainer, "groups_without_signal") == pytest.approx([2 / 3, 2 / 3])
        plain = run(tmp_path / f"{loss_type}-plain", GRPOTrainer, loss_type=loss_type, **args)
        losses[loss_type] = logged(trainer, "grad_norm")[0], logged(plain, "grad_norm")[0]
    for filtered, plain in losses.values():
        assert filtered > 1.5 * plain


def test_a_loss_that_normalizes_each_batch_is_refused(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match=r"loss_type='bnpo' .* choose one of grpo, dr_grpo"):
        run(tmp_path, FilteredGRPOTrainer, loss_type="bnpo")


def test_a_recipe_and_advantages_of_turns(tmp_path: Any) -> None:
    class Filtered(GroupFilter, TurnGRPOTrainer):
        pass

    reward = RagReward("naive-grpo")
    run(tmp_path / "recipe", FilteredGRPOTrainer, reward)
    trainer = run(tmp_path / "turns", Filtered, RagReward("naive-grpo"), **{"beta": 0.0})
    assert len(logged(trainer, "groups_without_signal")) == 2
