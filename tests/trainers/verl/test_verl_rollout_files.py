"""The files of `trainer.rollout_data_dir` become scored rows with one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rag_rewards.cli import main

RIGHT, WRONG = "<think>x</think><answer>Seine</answer>", "<think>x</think><answer>Rhine</answer>"
LABEL = json.dumps({"question": "Which river?", "answers": ["Seine"], "supporting": [1]})


@pytest.mark.parametrize("gold", [LABEL, "Seine", {"target": ["Seine"]}])
def test_a_file_that_verl_writes_is_scored(tmp_path: Path, gold: Any) -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    texts = [RIGHT, WRONG, RIGHT, RIGHT]
    prompts = ["user\nWhich river?\nassistant\n"] * 2 + ["user\nWhere?\nassistant\n"] * 2
    extra = {"uid": [f"{i // 2}_{i % 2}_0" for i in range(4)]}
    PPOTrainer._write_generations(
        prompts, texts, [gold] * 4, [1.0] * 4, extra, str(tmp_path / "rollouts"), 7
    )
    out = tmp_path / "scored.jsonl"
    command = ["score", str(tmp_path / "rollouts" / "7.jsonl"), "--columns", "verl"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "-r", "naive-grpo", "-o", str(out)])
    assert not ended.value.code
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [row["reward"] for row in rows] == [2.0, 1.0, 2.0, 2.0]
    assert {row["step"] for row in rows} == {7}
    if gold != LABEL:  # without a question, equal prompts are a group
        groups = [row["group"] for row in rows]
        assert groups[0] == groups[1] != groups[2] == groups[3]
