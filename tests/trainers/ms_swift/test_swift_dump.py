"""The dump of a reward in ms-swift's own computation of rewards."""

from __future__ import annotations

import json
from pathlib import Path

from test_swift_rewards import RIGHT, WRONG, answered, new_reward, rewards


def test_the_rows_have_the_step_and_the_rewards_of_the_trainer(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    reward = new_reward("naive-grpo", dump=str(path))
    values = [
        rewards(reward, answered(RIGHT, WRONG, RIGHT, "x"), step).squeeze(1).tolist()
        for step in range(2)
    ]
    reward.scorer.close()
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [row["step"] for row in rows] == [1] * 4 + [2] * 4
    assert [row["reward"] for row in rows] == [*values[0], *values[1]]
    assert {row["finish_reason"] for row in rows} == {"stop"}
