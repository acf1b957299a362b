"""Every adapter has the option `dump`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters import callables, ms_swift, openrlhf, verifiers, verl
from rag_rewards_adapters.skyrl import SkyRLRecipe
from rag_rewards_adapters.slime import SlimeRecipe

ROW = {"response": "<answer>Seine</answer>", "answers": ["Seine"], "question": "Which river?"}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_plain_functions(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    reward = callables.batch("naive-grpo", dump=str(path))
    assert reward([ROW, {"response": "x"}]) == [1.0, None]
    reward.scorer.close()
    assert [row["reward"] for row in rows_of(path)] == [1.0, None]
    assert rows_of(path)[1]["error"]["path"] == "answers"


def test_a_remote_reward_function_of_openrlhf(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    reward = openrlhf.reward_function("naive-grpo", dump=str(path))
    reward(["Q?<answer>a</answer>"], ["Q?"], ['{"answers": "a", "id": "q1"}'])
    reward.scorer.close()
    [row] = rows_of(path)
    assert (row["reward"], row["group"], row["prompt"]) == (1.0, f"q1/{row['run']}", "Q?")


def test_compute_score_of_verl(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    options = {"recipe": "naive-grpo", "dump": str(path), "dump_files": 2}
    information = {"index": 7, "question": "Which river?"}
    for text in ("<answer>Seine</answer>", "<answer>Rhone</answer>"):
        verl.compute_score("qa", text, '{"answers": ["Seine"]}', information, **options)
    verl.compute_score.scorer(options).close()
    rows = rows_of(path)
    assert [row["reward"] for row in rows] == [1.0, 0.0]
    assert {row["group"] for row in rows} == {f"7/{rows[0]['run']}"}


def test_a_reward_of_ms_swift(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    reward = ms_swift.reward_class("naive-grpo", recipe="naive-grpo", dump=str(path))()
    columns: dict[str, Any] = {
        "answers": [["Seine"]] * 2,
        "prompt_id": ["a"] * 2,
        "trainer_state": SimpleNamespace(global_step=3),
    }
    assert reward(["<answer>Seine</answer>", "x"], **columns) == [1.0, 0.0]
    reward.scorer.close()
    assert [(row["step"], row["reward"]) for row in rows_of(path)] == [(4, 1.0), (4, 0.0)]


@pytest.mark.parametrize("kind", [SlimeRecipe, SkyRLRecipe])
def test_recipes_with_turn_credit(kind: Any, tmp_path: Path) -> None:
    recipe = kind("search-r1", credit="return", dump=str(tmp_path / "rollouts.jsonl"))
    assert recipe.scorer.dump.path == tmp_path / "rollouts.jsonl"


def test_the_step_of_skyrl(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    recipe = SkyRLRecipe("search-r1", credit="return", dump=str(path))
    batch = {
        "prompts": [[{"role": "user", "content": "Which river?"}]],
        "env_extras": [{"reward_spec": {"ground_truth": {"target": ["Seine"]}}}],
        "trajectory_ids": [SimpleNamespace(instance_id="q1")],
        "batch_metadata": SimpleNamespace(global_step=9, training_phase="eval"),
    }
    output = {
        "response_ids": [[1, 2]],
        "prompt_token_ids": [[3]],
        "loss_masks": [[1, 1]],
        "env_metrics": [{"rag_turns": [{"text": "<answer>Seine</answer>"}]}],
    }
    asyncio.run(recipe.score(batch, output))
    recipe.scorer.close()
    [row] = rows_of(path)
    assert (row["step"], row["split"], row["reward"]) == (9, "validation", 1.0)
    assert row["turns"][0]["token_span"] == [0, 2]


def test_verifiers(tmp_path: Path) -> None:
    assert callable(verifiers.reward("naive-grpo", dump=str(tmp_path / "rollouts.jsonl")))
