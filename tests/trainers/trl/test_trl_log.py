"""The Parquet files of `log_completions` become scored rows with one command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rag_rewards_adapters.trl import RagReward
from trl_runs import rows as data
from trl_runs import says, trainer

from rag_rewards.cli import main

RIGHT = "<relevance>[1]</relevance><analysis>It is 1.</analysis><answer>Seine</answer>"


def test_a_log_of_real_steps_is_scored_as_in_training(tmp_path: Path) -> None:
    rewards = [RagReward("arena"), RagReward("naive-grpo")]
    run = trainer(
        tmp_path,
        rewards,
        rollout_func=says(RIGHT, "<answer>Rhone</answer>"),
        args={"log_completions": True, "max_steps": 1},
    )
    rewards[0].bind(run)
    run.train()
    [log] = (tmp_path / "completions").glob("*.parquet")
    out = tmp_path / "scored.jsonl"
    command = ["score", str(log), "--columns", "trl", "-r", "arena", "-o", str(out)]
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert not ended.value.code
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [row["reward"] for row in rows] == [13.0, 0.0, 13.0, 0.0]
    assert [row["arena"] for row in rows] == [13.0, 0.0, 13.0, 0.0]  # the column of TRL
    assert rows[0]["answers"] == ["Seine", "the Seine"]
    assert len({row["question"] for row in rows}) == 1


def test_the_means_of_an_evaluation_are_those_over_its_completions(tmp_path: Path) -> None:
    """The second batch of the evaluation has two completions, and the first one has four."""
    reward = RagReward("arena")
    wrong = "<answer>Rhone</answer>"
    run = trainer(
        tmp_path,
        reward,
        rollout_func=says(RIGHT, wrong, wrong, wrong),
        eval_dataset=data(3),
        args={"num_generations_eval": 2, "per_device_eval_batch_size": 4},
    )
    reward.bind(run)
    run.evaluate()
    [log] = [entry for entry in run.state.log_history if "eval_arena/accuracy" in entry]
    assert log["eval_arena/accuracy"] == pytest.approx(2 / 6)
    assert log["eval_arena/correct"] == pytest.approx(2 / 6)
    assert log["eval_arena/not_scored"] == 0.0
