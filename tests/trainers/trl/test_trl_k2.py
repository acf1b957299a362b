"""The KL penalty k2 inside TRL, against TRL's own loss and against the equation of the paper."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from rag_rewards_adapters.trl.trainers import K2_LOSS_TYPES, K2Trainer
from trl import GRPOTrainer
from trl_runs import config, make_model, make_tokenizer, rows, says

from rag_rewards.errors import UsageError
from rag_rewards.training.kl import k3

BETA = 0.04
SETTINGS = {"beta": BETA, "max_steps": 3, "loss_type": "grpo", "use_bias_correction_kl": False}
RESPONSES = ("Seine", "the Seine", "It is the Rhone, which is long", "no idea")
PENALTIES_AT_10 = {K2Trainer: 50.0, GRPOTrainer: 22_015.465795}
"""Each penalty for a token that the reference model makes e^10 times as probable: k2 and k3."""


def length(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [float(len(ids)) for ids in completion_ids]


def run_of(folder: Any, trainer_class: Any, *, evaluates: bool = False, **args: Any) -> Any:
    """Return a trainer of a tiny model with responses of different lengths."""
    model = str(folder / "model")  # TRL reads the reference model from the same place
    make_model("qwen2").save_pretrained(model)
    return trainer_class(
        model=model,
        reward_funcs=length,
        args=config(folder, **SETTINGS | args),
        train_dataset=rows(6),
        eval_dataset=rows(2) if evaluates else None,
        processing_class=make_tokenizer(),
        rollout_func=says(*RESPONSES),
    )


def gradient(loss: torch.Tensor, model: Any) -> torch.Tensor:
    weights = [each for each in model.parameters() if each.requires_grad]
    parts = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    return torch.cat([part.flatten() for part in parts if part is not None])


class K3Twin(K2Trainer):
    """The class under test with the penalty k3. Compares its loss with that of TRL."""

    penalty = staticmethod(k3)
    comparisons: list[tuple[str, float]]

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        expected = GRPOTrainer._compute_loss(self, model, inputs)
        loss = super()._compute_loss(model, inputs)
        mode = "train" if self.model.training else "eval"
        assert loss.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-7)
        first, second = self._metrics[mode]["kl"][-2:]
        assert second == pytest.approx(first, rel=1e-3, abs=1e-6)
        if loss.requires_grad:
            torch.testing.assert_close(
                gradient(loss, model), gradient(expected, model), rtol=1e-3, atol=1e-6
            )
        self.comparisons.append((mode, second))
        return loss


@pytest.mark.parametrize("loss_type", K2_LOSS_TYPES)
def test_the_weights_of_tokens_are_those_of_trl(tmp_path: Any, loss_type: str) -> None:
    """Two steps per generation, two optimizer passes, accumulated gradients, and evaluation."""
    args: dict[str, Any] = {
        "loss_type": loss_type,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "num_iterations": 2,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "per_device_eval_batch_size": 4,
    }
    if loss_type == "luspo":
        args["importance_sampling_level"] = "sequence"
    run = run_of(tmp_path, K3Twin, evaluates=True, **args)
    run.comparisons = []
    run.train()
    divergences = dict(run.comparisons)
    assert [mode for mode, _ in run.comparisons].count("train") == 6
    assert divergences["train"] > 1e-3  # the policy moved away from the reference model
    assert divergences["eval"] > 1e-3


def test_results_of_tools_are_not_in_the_penalty(tmp_path: Any) -> None:
    class WithTools(K3Twin):
        def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
            tool_mask = torch.ones_like(inputs["completion_mask"])
            tool_mask[:, ::2] = 0
            return super()._compute_loss(model, {**inputs, "tool_mask": tool_mask})

    run = run_of(tmp_path, WithTools)
    run.comparisons = []
    run.train()
    assert len(run.comparisons) == 3


class Recorder(K2Trainer):
    """Records the inputs of the loss, its value, and the log-probabilities of the policy."""

    records: list[tuple[dict[str, Any], torch.Tensor, float]]

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        with torch.no_grad():
            logps = log_probabilities(self, model, inputs)
        loss = super()._compute_loss(model, inputs)
        self.records.append((dict(inputs), logps, loss.item()))
        return loss


def log_probabilities(run: Any, model: Any, inputs: Any) -> torch.Tensor:
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    count = inputs["completion_ids"].shape[1]
    return GRPOTrainer._get_per_token_logps_and_entropies(run, model, ids, mask, count)[0]


def naive_loss(inputs: dict[str, Any], logps: torch.Tensor, *, epsilon: float) -> float:
    """Return the clipped loss with the penalty k2, averaged over the tokens of each response."""
    old = inputs.get("old_per_token_logps")
    old, now = (logps if old is None else old).tolist(), logps.tolist()
    reference = inputs["ref_per_token_logps"].tolist()
    means = []
    for i, advantage in enumerate(inputs["advantages"].tolist()):
        losses = []
        for t, counts in enumerate(inputs["completion_mask"][i].tolist()):
            if counts:
                ratio = math.exp(now[i][t] - old[i][t])
                clipped = min(max(ratio, 1 - epsilon), 1 + epsilon)
                surrogate = min(ratio * advantage, clipped * advantage)
                losses.append(-surrogate + BETA * (reference[i][t] - now[i][t]) ** 2 / 2)
        means.append(sum(losses) / len(losses))
    return sum(means) / len(means)


def test_the_loss_is_that_of_the_paper(tmp_path: Any) -> None:
    """Two optimizer passes, so that ratios differ from 1 and some are clipped."""
    run = run_of(tmp_path, Recorder, num_iterations=2, max_steps=4)
    run.records = []
    run.train()
    for inputs, logps, loss in run.records:
        assert loss == pytest.approx(naive_loss(inputs, logps, epsilon=0.2), rel=1e-4, abs=1e-6)
    lengths = run.records[-1][0]["completion_mask"].sum(-1)
    assert len(set(lengths.tolist())) > 1  # else every aggregation would be equal


@pytest.mark.parametrize("trainer_class", PENALTIES_AT_10)
def test_penalty_of_a_token_that_the_policy_made_unlikely(
    tmp_path: Any, trainer_class: type
) -> None:
    class Distant(trainer_class):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
            with torch.no_grad():
                reference = log_probabilities(self, model, inputs) + 10.0
            return super()._compute_loss(model, {**inputs, "ref_per_token_logps": reference})

    run = run_of(tmp_path, Distant, max_steps=1)
    run.train()
    assert run.state.log_history[0]["kl"] == pytest.approx(PENALTIES_AT_10[trainer_class], rel=1e-3)


def test_the_penalty_needs_no_second_forward_pass(tmp_path: Any) -> None:
    passes = {}
    for trainer_class in (GRPOTrainer, K2Trainer):
        run = run_of(tmp_path / trainer_class.__name__, trainer_class)
        calls: list[int] = []
        run.model.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        run.train()
        passes[trainer_class] = len(calls)
    assert passes[K2Trainer] == passes[GRPOTrainer] > 0


def test_without_a_weight_there_is_no_penalty(tmp_path: Any) -> None:
    run = run_of(tmp_path, K2Trainer, beta=0.0, max_steps=1)
    run.train()
    assert "kl" not in run.state.log_history[0]


def test_a_setting_that_corrects_k3_is_an_error(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="use_bias_correction_kl"):
        run_of(tmp_path, K2Trainer, use_bias_correction_kl=True)
