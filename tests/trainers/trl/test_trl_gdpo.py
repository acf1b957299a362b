"""GDPO in GRPOTrainer: components as reward functions of one scoring pass."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from rag_rewards_adapters.trl import RagReward, TurnGRPOTrainer
from trl_runs import config, make_model, make_tokenizer, rows, says, trainer

sys.path.append(str(Path(__file__).resolve().parents[1]))

from component_groups import BATCHES, ComponentBatch, texts_of, written

from rag_rewards.errors import UsageError
from rag_rewards.training.credit import whiten

GDPO = {"multi_objective_aggregation": "normalize_then_sum", "per_device_train_batch_size": 8}


def run_of(folder: Any, batch: ComponentBatch) -> tuple[Any, RagReward, Any]:
    """Return a trainer that generates a batch, its reward, and the tensors of the loss."""
    reward = RagReward(written())
    run = trainer(
        folder,
        reward.components(*batch.weights),
        rollout_func=says(*texts_of(batch)),
        args={
            **GDPO,
            "reward_weights": [*batch.weights.values()],
            "max_completion_length": 64,
        },
    )
    reward.bind(run)
    run.model.train()
    reward.scorer.recipes[0].total.passes = 0  # `bind` scores the first rows
    inputs = [dict(run.train_dataset[g]) for g in range(2) for _ in range(4)]
    return run, reward, run._generate_and_score_completions(inputs)


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch.name)
def test_advantages_equal_those_of_gdpo(tmp_path: Any, batch: ComponentBatch) -> None:
    run, reward, output = run_of(tmp_path, batch)
    assert reward.scorer.recipes[0].total.passes == 1
    sums = [member for group in batch.normalized("trl") for member in group]
    golden = [member[0] for member in whiten(sums, preset="trl")]
    assert output["advantages"].tolist() == pytest.approx(golden, abs=5e-5)
    names = {f"rewards/written/{name}/mean" for name in batch.weights}
    assert names <= run._metrics["train"].keys()


def test_flat_groups_are_counted(tmp_path: Any) -> None:
    """TRL's own share is that of the whole batch with this aggregation."""
    batch = next(batch for batch in BATCHES if batch.name == "a flat group")
    run, _, _ = run_of(tmp_path, batch)
    assert run._metrics["train"]["written/flat_groups"] == [0.5]
    assert run._metrics["train"]["frac_reward_zero_std"] == [0.0]


def test_a_flat_batch_has_no_advantage(tmp_path: Any) -> None:
    flat = BATCHES[0].groups[0][:1] * 4
    other = ({"outcome": 0.7, "format": 0.1},) * 4
    run, _, output = run_of(tmp_path, ComponentBatch("flat", (flat, other)))
    assert output["advantages"].tolist() == [0.0] * 8
    assert run._metrics["train"]["written/flat_groups"] == [1.0]


def test_the_share_of_flat_groups_without_components(tmp_path: Any) -> None:
    reward = RagReward(written())
    texts = texts_of(next(batch for batch in BATCHES if batch.name == "a flat group"))
    args = {"per_device_train_batch_size": 8, "max_completion_length": 64}
    run = trainer(tmp_path, reward, rollout_func=says(*texts), args=args)
    reward.bind(run)
    run.model.train()
    inputs = [dict(run.train_dataset[g]) for g in range(2) for _ in range(4)]
    run._generate_and_score_completions(inputs)
    assert run._metrics["train"]["frac_reward_zero_std"] == [0.5]


def test_a_training_with_components(tmp_path: Any) -> None:
    reward = RagReward("search-r1", settings={"scheme": "format"})
    run = trainer(
        tmp_path,
        reward.components("outcome", "format"),
        rollout_func=says("<think>a</think><answer>Seine</answer>", "Seine", "no", "x"),
        args={**GDPO, "reward_weights": [1.0, 0.2], "max_completion_length": 40},
        train_dataset=rows(8),
    )
    reward.bind(run)
    run.train()
    logged = run.state.log_history[0]
    assert logged["rewards/search-r1/outcome/mean"] == 0.25
    assert logged["rewards/search-r1/format/mean"] == 0.25
    assert logged["search-r1/flat_groups"] == 0.0


def test_components_share_their_pass_in_a_pickle() -> None:
    rewards = RagReward("search-r1", group_size=2).components("outcome", "format")
    copies = pickle.loads(pickle.dumps(rewards))  # noqa: S301
    batch = {"prompts": ["Q"] * 2, "completions": ["<answer>a</answer>"] * 2}
    columns = {"answers": [["a"]] * 2}
    assert [copy(**batch, **columns) for copy in copies] == [[1.0, 1.0], [0.0, 0.0]]
    assert copies[0].reward is copies[1].reward


@pytest.mark.parametrize(
    ("options", "names", "why"),
    [
        ({}, ["outcom"], "no component 'outcom'; did you mean 'outcome'"),
        ({}, [], "no component is given: name some of outcome"),
        ({}, ["outcome", "outcome"], "name each of them once"),
        ({"std_floor": 0.1}, ["outcome"], "would normalize twice"),
    ],
)
def test_wrong_components_are_refused(options: Any, names: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        RagReward("search-r1", **options).components(*names)


def test_the_trainer_of_turns_refuses_components(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="one reward"):
        TurnGRPOTrainer(
            model=make_model("qwen2"),
            processing_class=make_tokenizer(),
            train_dataset=rows(),
            reward_funcs=RagReward("search-r1").components("outcome", "format"),
            args=config(tmp_path),
        )
