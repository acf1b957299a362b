"""Dumps of verl's agent loop, and of its reward workers under Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import v1_trainer as v1
from processes import wait_for
from rag_rewards_adapters import engine_policy
from reward_batches import DOCUMENTS, KWARGS, QUESTION, batch_of, config_with_manager
from test_verl_group_loops import check, engine_of, rewards_of, run_worker
from test_verl_reward_loop import RIGHT, TEXTS, groups, loop, running  # noqa: F401 (fixtures)

from rag_rewards.groups import positions_by_key
from rag_rewards.rows import decode_row
from rag_rewards.scorer import Scorer


def rows_of(place: Path, count: int) -> list[dict[str, Any]]:
    """Return the rows of a dump when all of them are written."""

    def lines() -> list[bytes]:
        """Return the complete lines, or none while some are missing."""
        files = sorted(place.glob("rollouts.*jsonl"))
        found = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
        return found if len(found) >= count and all(map(is_complete, found)) else []

    return [json.loads(line) for line in wait_for(lines)]


def is_complete(line: bytes) -> bool:
    return line.endswith(b"\n")


def test_the_agent_loop_writes_groups_with_their_evidence(
    monkeypatch: Any,
    model: Any,
    tmp_path: Path,
) -> None:
    texts = ["<think>a</think><answer>Seine</answer>", "<answer>the Seine</answer>", "Rhone"]
    engine = engine_of(model, {"Paris": texts})
    config = v1.configuration(
        model,
        "ctrl-rag",
        f"{KWARGS}.settings.threshold=null",
        f"{KWARGS}.dump={tmp_path}/rollouts.jsonl",
        f"{KWARGS}.dump_files=2",
    )
    monkeypatch.setattr(engine_policy, "selfcheck", lambda policy: check())
    queue = run_worker(monkeypatch, config, engine, [v1.question("Paris")])
    rows = rows_of(tmp_path, 3)
    assert {row["step"] for row in rows} == {7}
    assert len({row["group"] for row in rows}) == 1
    float32 = pytest.approx(sorted(rewards_of(queue)))
    assert sorted(row["reward"] for row in rows) == float32
    scores = Scorer.load("ctrl-rag", {"threshold": None}).score_each(
        [decode_row(json.dumps(row)) for row in rows]
    )
    assert [score.value for score in scores] == [row["reward"] for row in rows]


def test_prompts_with_one_question_have_groups_of_their_own(
    tokenizer: Any,
    loop: Any,  # noqa: F811
    folder: Path,
    tmp_path: Path,
) -> None:
    """Rows without an id, whose prompts differ only in the documents that the user wrote."""
    config = config_with_manager(
        folder, f"{KWARGS}.recipe=arena", f"{KWARGS}.dump={tmp_path}/rollouts.jsonl"
    )
    rows = groups(*[(RIGHT,) * 4] * 3)
    for i, row in enumerate(rows):
        row.extra_info = {"question": QUESTION, "documents": DOCUMENTS}
        row.columns["raw_prompt"] = [{"role": "user", "content": f"{i // 4} {QUESTION}"}]
    loop(config).compute_rm_score(batch_of(tokenizer, rows))
    written = positions_by_key(row["group"] for row in rows_of(tmp_path, 12))
    assert [len(members) for members in written.values()] == [4] * 3


def test_each_reward_worker_writes_a_file_of_its_own(
    tokenizer: Any,
    loop: Any,  # noqa: F811
    folder: Path,
    tmp_path: Path,
) -> None:
    config = config_with_manager(
        folder, f"{KWARGS}.recipe=arena", f"{KWARGS}.dump={tmp_path}/rollouts.jsonl"
    )
    batch = batch_of(tokenizer, groups(TEXTS, (RIGHT, RIGHT)))
    result = loop(config).compute_rm_score(batch)  # 6 rows, two workers
    rows = rows_of(tmp_path, 6)
    assert len(list(tmp_path.iterdir())) == 2
    assert len({row["id"] for row in rows}) == len(rows) == 6
    assert sorted(row["reward"] for row in rows) == sorted(
        result.batch["rm_scores"].sum(-1).tolist()
    )
    [run] = {row["run"] for row in rows}
    assert {row["group"] for row in rows} == {f"0/{run}", f"1/{run}"}
    assert all(path.name.startswith(f"rollouts.{run}-") for path in tmp_path.iterdir())
