"""The KL penalty k2 inside ms-swift, against its own loss and against the equation of the paper."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from processes import WAIT_SECONDS
from rag_rewards_adapters.ms_swift.k2_trainer import LOSS_TYPES, K2Trainer
from swift.pipelines import rlhf_main
from swift.rewards import ORM, orms
from swift.rlhf_trainers import GRPOTrainer
from swift.trainers.trainer_factory import TrainerFactory

from rag_rewards.errors import UsageError
from rag_rewards.training.kl import k3

TESTS = Path(__file__).resolve().parents[2]
sys.path.append(str(TESTS / "models"))
from tiny_models import make_model, make_tokenizer  # noqa: E402

BETA = 0.04
PENALTIES_AT_10 = {"K2": 50.0, "Own": 10.0}
"""Each penalty for a token that the reference model makes e^10 times as probable.

The penalty of ms-swift is k3, which it limits to 10, so that its gradient is 0.
"""
OPTIONS = (
    "--rlhf_type grpo --model_type qwen2 --template qwen2_5 --tuner_type full "
    "--torch_dtype float32 --num_generations 4 --per_device_train_batch_size 4 "
    "--max_completion_length 12 --max_steps 2 --logging_steps 1 --save_strategy no "
    "--use_vllm false --add_version false --report_to none --load_from_cache_file false "
    "--dataloader_num_workers 0 --learning_rate 1e-2 --reward_funcs length --seed 1 "
    "--gradient_checkpointing false --check_model false"
).split()


class Length(ORM):
    """Reward of a response by its length, with a spread in every group."""

    def __call__(self, completions: list[str], **_: Any) -> list[float]:
        return [float(len(each) + i % 3) for i, each in enumerate(completions)]


@pytest.fixture(autouse=True)
def _registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(orms, "length", Length)
    grpo = TrainerFactory.TRAINER_MAPPING["grpo"]
    yield
    TrainerFactory.TRAINER_MAPPING["grpo"] = grpo


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swift")
    make_model("qwen2").save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    rows = [{"messages": [{"role": "user", "content": f"Which river is {i}?"}]} for i in range(8)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def train(folder: Path, trainer_class: str | None, *options: str) -> list[dict[str, Any]]:
    """Train with a class of this module, or with the registered one. Return the logged steps."""
    if trainer_class is not None:
        TrainerFactory.TRAINER_MAPPING["grpo"] = f"{__name__}.{trainer_class}"
    paths = ["--model", folder / "model", "--dataset", folder / "rows.jsonl"]
    paths += ["--output_dir", folder / "output"]
    result = rlhf_main([*map(str, paths), *OPTIONS, "--beta", str(BETA), *options])
    history: list[dict[str, Any]] = result["log_history"]
    return history


def gradient(loss: torch.Tensor, model: Any) -> torch.Tensor:
    weights = [each for each in model.parameters() if each.requires_grad]
    parts = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    return torch.cat([part.flatten() for part in parts if part is not None])


def shortened(batch: Any) -> Any:
    """Return the batch with responses of different lengths."""
    mask = batch.completion_mask.clone()
    for i, row in enumerate(mask):
        row[2 + 3 * (i % 4) :] = 0
    return replace(batch, completion_mask=mask)


def limited_k3(logps: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Return the penalty of ms-swift, which limits k3 to 10."""
    return k3(logps, reference).clamp(max=10.0)


class K3Twin(K2Trainer):
    """The class under test with the penalty k3. Compares its loss with that of ms-swift."""

    penalty = staticmethod(limited_k3)
    divergences: ClassVar[list[float]] = []

    def _compute_loss_and_metrics(self, model: Any, model_inputs: Any, grpo_batch: Any) -> Any:
        batch = shortened(grpo_batch)
        expected, own = GRPOTrainer._compute_loss_and_metrics(self, model, model_inputs, batch)
        loss, metrics = super()._compute_loss_and_metrics(model, model_inputs, batch)
        torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(
            gradient(loss, model), gradient(expected, model), rtol=1e-3, atol=1e-6
        )
        assert metrics["kl"] == pytest.approx(own["kl"], rel=1e-3, abs=1e-6)
        self.divergences.append(own["kl"])
        return loss, metrics


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_the_weights_of_tokens_are_those_of_ms_swift(folder: Path, loss_type: str) -> None:
    K3Twin.divergences.clear()
    options = ["--loss_type", loss_type, "--gradient_accumulation_steps", "2"]
    train(folder, "K3Twin", *options, "--num_iterations", "2")
    assert len(K3Twin.divergences) == 4
    assert K3Twin.divergences[-1] > 1e-3  # the policy moved away from the reference model


class Naive(K2Trainer):
    """Compares the loss with ARENA, section 3.2: the mean of the token losses of each response."""

    lengths: ClassVar[list[int]] = []

    def _compute_loss_and_metrics(self, model: Any, model_inputs: Any, grpo_batch: Any) -> Any:
        batch = shortened(grpo_batch)
        with torch.no_grad():
            logps = GRPOTrainer._get_per_token_logps_and_entropies(
                self, model, model_inputs, batch
            )[0]
        loss, metrics = super()._compute_loss_and_metrics(model, model_inputs, batch)
        assert loss.item() == pytest.approx(naive_loss(batch, logps.tolist()), rel=1e-4, abs=1e-6)
        self.lengths.extend(batch.completion_mask.sum(-1).tolist())
        return loss, metrics


def naive_loss(batch: Any, now: list[list[float]], epsilon: float = 0.2) -> float:
    old_logps = batch.old_per_token_logps
    old = now if old_logps is None else old_logps.tolist()
    reference, means = batch.ref_per_token_logps.tolist(), []
    for i, advantages in enumerate(batch.advantages.tolist()):
        losses = []
        for t, counts in enumerate(batch.completion_mask[i].tolist()):
            if counts:
                ratio = math.exp(now[i][t] - old[i][t])
                clipped = min(max(ratio, 1 - epsilon), 1 + epsilon)
                surrogate = min(ratio * advantages[t], clipped * advantages[t])
                losses.append(-surrogate + BETA * (reference[i][t] - now[i][t]) ** 2 / 2)
        means.append(sum(losses) / len(losses))
    return sum(means) / len(means)


def test_the_loss_is_that_of_the_paper(folder: Path) -> None:
    Naive.lengths.clear()
    train(folder, "Naive", "--loss_type", "grpo", "--num_iterations", "2")
    assert set(Naive.lengths) == {2, 5, 8, 11}


def with_distant_reference(run: Any, model: Any, inputs: Any, batch: Any) -> Any:
    """Return the batch with a reference model that makes each token e^10 times as probable."""
    with torch.no_grad():
        logps = GRPOTrainer._get_per_token_logps_and_entropies(run, model, inputs, batch)[0]
    return replace(batch, ref_per_token_logps=logps + 10.0)


class K2(K2Trainer):
    def _compute_loss_and_metrics(self, model: Any, model_inputs: Any, grpo_batch: Any) -> Any:
        batch = with_distant_reference(self, model, model_inputs, grpo_batch)
        return super()._compute_loss_and_metrics(model, model_inputs, batch)


class Own(GRPOTrainer):
    def _compute_loss_and_metrics(self, model: Any, model_inputs: Any, grpo_batch: Any) -> Any:
        batch = with_distant_reference(self, model, model_inputs, grpo_batch)
        return super()._compute_loss_and_metrics(model, model_inputs, batch)


@pytest.mark.parametrize("trainer_class", PENALTIES_AT_10)
def test_penalty_of_a_token_that_the_policy_made_unlikely(folder: Path, trainer_class: str) -> None:
    first = train(folder, trainer_class)[0]
    assert first["kl"] == pytest.approx(PENALTIES_AT_10[trainer_class], rel=1e-4)


def test_the_plugin_of_arena_selects_k2(folder: Path, tmp_path: Path) -> None:
    """The plugin that `rag-rewards init` writes, read with --external_plugins."""
    command = [sys.executable, "-m", "rag_rewards", "init", "ms-swift", "-r", "arena"]
    subprocess.run([*command, "-o", tmp_path / "run"], check=True, timeout=WAIT_SECONDS)
    first = train(folder, None, "--external_plugins", str(tmp_path / "run" / "plugin.py"))[0]
    assert TrainerFactory.TRAINER_MAPPING["grpo"].endswith("ms_swift.k2_trainer.K2Trainer")
    assert first["kl"] == pytest.approx(0.0, abs=1e-6)  # the policy is the reference model


@pytest.mark.parametrize("option", ["--kl_in_reward", "--loss_type"])
def test_an_option_without_a_penalty_of_tokens_is_an_error(folder: Path, option: str) -> None:
    value = {"--kl_in_reward": "true", "--loss_type": "real"}[option]
    with pytest.raises(UsageError, match=option):
        train(folder, "K2", option, value)
