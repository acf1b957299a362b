"""GRPO in the tiny world, from the committed checkpoint, with the trainer of TRL."""

from __future__ import annotations

import shutil

import pytest
import torch
from rag_rewards_adapters.trl import RagReward
from transformers import TrainerCallback

import rag_rewards as rr
from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.models.transformers import TransformersPolicy
from rag_rewards.scorer import Scorer
from rag_rewards.tiny_world.formats import PLAIN, TRUTHRL
from rag_rewards.tiny_world.learning_curve import LearningCurve
from rag_rewards.tiny_world.measures import measure
from rag_rewards.tiny_world.model import CHECKPOINT, load
from rag_rewards.tiny_world.train import SAVE_INTERVAL, Run, train, trainer_of
from rag_rewards.tiny_world.world import questions


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def truthrl(scheme, steps=60):
    return Run(
        TRUTHRL, {"recipe": "truthrl", "settings": {"verifier": "exact", "scheme": scheme}}, steps
    )


def test_hallucination_falls_under_the_ternary_reward_and_not_under_the_binary_one(tmp_path):
    fresh = questions(400, "fresh")
    results = {"base": measure(*load(), TRUTHRL, fresh)}
    for scheme in ("binary", "ternary"):
        trainer = train(truthrl(scheme), tmp_path / scheme)
        results[scheme] = measure(trainer.model, trainer.processing_class, TRUTHRL, fresh)
    wrong = {name: measures["unanswerable answered"] for name, measures in results.items()}
    assert wrong["base"] > 0.6
    assert wrong["ternary"] < 0.2
    assert wrong["binary"] > wrong["base"] - 0.1
    assert results["binary"]["hallucination"] - results["ternary"]["hallucination"] > 0.2
    assert results["ternary"]["answerable right"] > 0.95


class RecordingReward(RagReward):
    """Records the last batch and the weights with which it was scored."""

    def __call__(self, **batch):
        rewards = super().__call__(**batch)
        model = self._trainer.model
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}
        self.rollouts, self.groups = self._rollouts_of(batch)
        self.rewards = rewards
        return rewards

    def _rollouts_of(self, batch):
        from rag_rewards_adapters.trl.batch import Batch

        arguments = Batch.of(**batch)
        return self._rollouts(arguments), self._groups(arguments)


def test_rewards_of_the_policy_in_training_equal_those_of_its_saved_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("rag_rewards_adapters.trl.RagReward", RecordingReward)
    settings = {"on_missing_support": "zero", "threshold": None}
    run = Run(PLAIN, {"recipe": "ctrl-rag-clr", "settings": settings}, steps=4)
    trainer = train(run, tmp_path / "run")
    (reward,) = trainer.reward_funcs
    saved = tmp_path / "saved"
    trainer.model.load_state_dict(reward.weights)
    trainer.model.save_pretrained(saved)
    trainer.processing_class.save_pretrained(saved)
    policy = TransformersPolicy.load(str(saved), dtype="float32", device="cpu")
    scorer = Scorer(rr.recipe("ctrl-rag-clr", settings), Models(policy=policy), prompt=PLAIN.prompt)
    again = scorer.score_each(reward.rollouts, reward.groups)
    assert [score.value for score in again] == pytest.approx(reward.rewards, abs=1e-4)
    assert len({round(value, 3) for value in reward.rewards}) > 5


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == SAVE_INTERVAL + 3:
            raise KeyboardInterrupt


def test_an_interrupted_run_continues_to_the_same_result(tmp_path):
    run = truthrl("ternary", SAVE_INTERVAL + 8)
    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path / "run", callbacks=[Stop()])
    # Another process must recognize the run, so its identity must not depend on this process.
    assert " at 0x" not in (tmp_path / "run" / "run.txt").read_text()
    curve = LearningCurve(TRUTHRL, interval=4, count=8)
    resumed = train(run, tmp_path / "run", callbacks=[curve])
    assert [step for step, _ in curve.points] == [
        SAVE_INTERVAL,
        SAVE_INTERVAL + 4,
        SAVE_INTERVAL + 8,
    ]
    whole = train(run, tmp_path / "whole")
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(value, resumed.model.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_evaluation_does_not_change_the_training(tmp_path):
    run = truthrl("ternary", 3)
    alone = train(run, tmp_path / "alone")
    watched = train(
        run, tmp_path / "watched", callbacks=[LearningCurve(TRUTHRL, interval=1, count=8)]
    )
    for name, value in alone.model.state_dict().items():
        assert torch.equal(value, watched.model.state_dict()[name])


def test_a_constant_reward_is_reported(tmp_path):
    def constant(rollout):
        return 0.5

    run = Run(PLAIN, {"recipe": rr.custom("constant", constant)}, 5)
    with pytest.raises(UsageError, match=r"no training signal.* 16 groups \(mean 0.5\)"):
        train(run, tmp_path / "run")
    assert not list((tmp_path / "run").glob("checkpoint-*"))


def test_a_folder_of_another_run_is_refused(tmp_path):
    train(truthrl("ternary", 2), tmp_path / "run")
    with pytest.raises(UsageError, match="contains another run"):
        train(truthrl("binary", 2), tmp_path / "run")


def test_a_wrong_checkpoint_is_an_error_before_training(tmp_path):
    shutil.copytree(CHECKPOINT, tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"\0" * 64)
    run = Run(PLAIN, {"recipe": "ctrl-rag"}, start=tmp_path / "broken")
    with pytest.raises(UsageError, match="cannot load the model"):
        trainer_of(run, tmp_path / "run")
