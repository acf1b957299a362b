"""The option `dump` with several rollouts. test_every_adapter.py has one of each adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rag_rewards_adapters import callables, verl

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
