"""The dump of a server: the rollouts of POST /score and of POST /openrlhf as scored rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from running_server import ARENA, Running


def test_a_server_writes_the_rollouts_of_its_routes(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    server = Running(["-r", "arena", "--dump", path, "--dump-files", 2])
    try:
        server.wait()
        row = {**ARENA, "question": "Which river?", "id": "q1", "step": 4}
        answer = server.post("/score", json={"rollouts": [row, {**row, "step": 5}]})
        rewards = [score["reward"] for score in answer.json()["scores"]]
        sample: dict[str, Any] = {
            "query": [f"Q?{ARENA['response']}"],
            "prompts": ["Q?"],
            "labels": [json.dumps({"answers": "Rhone", "supporting": [1]})],
        }
        answer = server.post("/openrlhf", json=sample)
        rewards.append(answer.json()["rewards"])
    finally:
        server.stop()
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [row["reward"] for row in rows] == rewards
    assert [row.get("step") for row in rows] == [4, 5, None]
    assert rows[2]["prompt"] == "Q?"
    assert rows[2]["answers"] == "Rhone"
    assert rows[0]["components"]["bonus"] == 10.0
