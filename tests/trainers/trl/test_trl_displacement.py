"""The monitor of likelihood displacement in real trainings of a tiny model."""

from __future__ import annotations

import logging
from statistics import mean
from typing import Any

import pytest
import torch
from rag_rewards_adapters.displacement import THRESHOLD, DisplacementMonitor
from rag_rewards_adapters.trl import RagReward, monitor
from trl import GRPOTrainer
from trl_runs import config, make_model, make_tokenizer, naive, rows, says, trainer, weights

from rag_rewards.errors import RagRewardsError, UsageError
from rag_rewards.evidence.protocols import ScoreRequest
from rag_rewards.rollout import Score

RIGHT = "<answer>Seine</answer>"
OTHERS = ("<answer>Rhone</answer>", "no idea", "the Nile")
CHANGE, LOGPROB = "naive-grpo/right_logprob_change", "naive-grpo/right_logprob"


def logged(run: Any, name: str) -> dict[int, float]:
    return {entry["step"]: entry[name] for entry in run.state.log_history if name in entry}


def run_of(folder: Any, recipe: Any, *, every: int = 2, **options: Any) -> Any:
    """Return a training whose groups have one right response."""
    reward = RagReward(recipe, displacement_every=every)
    texts = says(RIGHT, *OTHERS)
    run = trainer(folder, reward, rollout_func=texts, train_dataset=rows(2), **options)
    reward.bind(run)
    run.train()
    return run


class Recorded(GRPOTrainer):
    """Keeps the output of each generation with a copy of the weights."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.__dict__.setdefault("generations", []).append((dict(output), state))
        return output


def test_the_number_is_that_of_a_naive_recomputation(tmp_path: Any) -> None:
    """Responses of the first two steps, whose results of tools do not count, at later weights."""
    texts = [(RIGHT, *OTHERS), (*OTHERS, RIGHT)]

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        generated = says(*texts[trainer.state.global_step % 2])(prompts, trainer)
        masks = [[int(i % 5 != 3) for i in range(len(ids))] for ids in generated["completion_ids"]]
        return {**generated, "env_mask": masks}

    reward = RagReward("naive-grpo", displacement_every=2)
    run = Recorded(
        make_model("qwen2"),
        reward_funcs=reward,
        args=config(tmp_path, max_steps=5, num_iterations=1),
        train_dataset=rows(2),
        processing_class=make_tokenizer(),
        rollout_func=rollout,
    )
    reward.bind(run)
    run.train()
    kept: dict[Any, Any] = {}
    model = make_model("qwen2").eval()
    for step, (output, state) in enumerate(run.generations):
        model.load_state_dict(state)
        values = {key: mean_logprob(model, *key) for key in kept}
        if step in (2, 4):
            changes = [values[key] - first for key, first in kept.items()]
            assert logged(run, CHANGE)[step + 1] == pytest.approx(mean(changes), abs=1e-5)
            assert logged(run, LOGPROB)[step + 1] == pytest.approx(mean(values.values()), abs=1e-5)
        key = right_of(output, 0 if step % 2 == 0 else 3)
        if key[0] not in {prompt for prompt, *_ in kept}:
            kept[key] = mean_logprob(model, *key)
    assert len(kept) == 2
    assert list(logged(run, CHANGE)) == list(logged(run, LOGPROB)) == [3, 5]


def right_of(output: Any, i: int) -> Any:
    prompt = output["prompt_ids"][i][output["prompt_mask"][i].bool()]
    present = output["completion_mask"][i].bool()
    own = output["tool_mask"][i][present]
    return (
        tuple(prompt.tolist()),
        tuple(output["completion_ids"][i][present].tolist()),
        tuple(own.tolist()),
    )


def mean_logprob(model: Any, prompt: Any, response: Any, own: Any) -> float:
    values = naive(model, ScoreRequest((prompt,), (response,)))[0, 0]
    return mean(value for value, is_own in zip(values, own, strict=True) if is_own)


def opposed(rollout: Any) -> Score:
    """A reward that makes right responses less likely."""
    is_right = "Seine" in str(rollout.response)
    return Score(float(not is_right), correct=float(is_right))


def test_a_run_that_displaces_right_responses_falls_and_warns_once(
    tmp_path: Any, caplog: Any
) -> None:
    with caplog.at_level(logging.WARNING, "rag_rewards"):
        run = run_of(tmp_path, opposed, args={"max_steps": 8})
    changes = logged(run, "opposed/right_logprob_change")
    assert list(changes) == [3, 5, 7]
    assert 0 > changes[3] > changes[5] > changes[7]
    assert changes[7] < THRESHOLD
    messages = [text for text in caplog.messages if "likelihood displacement" in text]
    assert len(messages) == 1
    assert "2 right responses" in messages[0]


def test_a_run_that_learns_right_responses_rises(tmp_path: Any, caplog: Any) -> None:
    run = run_of(tmp_path, "naive-grpo", args={"max_steps": 8})
    changes = logged(run, CHANGE)
    assert 0 < changes[3] < changes[5] < changes[7]
    assert "likelihood displacement" not in caplog.text


def test_the_monitor_changes_no_training_and_no_evaluation(tmp_path: Any) -> None:
    args = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
    runs = [
        run_of(tmp_path, "naive-grpo", every=every, eval_dataset=rows(2), args=args)
        for every in (0, 1)
    ]
    assert torch.equal(*(weights(run.model) for run in runs))
    names = [{name for entry in run.state.log_history for name in entry} for run in runs]
    assert names[1] - names[0] == {CHANGE, LOGPROB}


def test_each_binding_has_its_own_monitor_and_each_generation_one_measurement(
    tmp_path: Any, monkeypatch: Any
) -> None:
    calls: list[Any] = []
    step = DisplacementMonitor.step

    async def recorded(self: Any, *arguments: Any) -> Any:
        calls.append(self)
        return await step(self, *arguments)

    monkeypatch.setattr(DisplacementMonitor, "step", recorded)
    reward = RagReward("naive-grpo", displacement_every=1)
    for _ in range(2):
        run = trainer(tmp_path, reward, rollout_func=says(RIGHT, *OTHERS), args={"max_steps": 2})
        reward.bind(run)
        reward.bind(run)
        run.train()
        assert list(logged(run, CHANGE)) == [2]
    assert len(calls) == 4
    assert calls[0] is calls[1] is not calls[2]


@pytest.mark.parametrize("is_own", [True, False])
def test_an_error_of_one_rank_ends_all_ranks(tmp_path: Any, monkeypatch: Any, is_own: bool) -> None:
    """The failing rank sends its error before it raises it, so that no rank waits for it."""
    sent: list[Any] = []

    async def step(*_: Any) -> list[Any]:
        if is_own:
            raise UsageError("the policy fails")
        return []

    def gather(results: list[Any]) -> list[Any]:
        sent.extend(results)
        return [*results, *([] if is_own else ["UsageError: the policy fails"])]

    monkeypatch.setattr(DisplacementMonitor, "step", step)
    monkeypatch.setattr(monitor, "gather_object", gather)
    with pytest.raises(RagRewardsError, match="the policy fails"):
        run_of(tmp_path, "naive-grpo")
    assert sent == ["UsageError: the policy fails"] * is_own


@pytest.mark.parametrize("every", [-1, 1.5, True, "2"])
def test_a_wrong_number_of_steps_is_refused(every: Any) -> None:
    with pytest.raises(UsageError, match="displacement_every"):
        RagReward("naive-grpo", displacement_every=every)


def test_without_a_trainer_the_monitor_is_refused() -> None:
    reward = RagReward("naive-grpo", displacement_every=5)
    with pytest.raises(UsageError, match="bind"):
        reward(prompts=["q"], completions=[RIGHT], answers=[["Seine"]])
