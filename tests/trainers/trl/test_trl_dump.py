"""Dumps of real training steps: rows that can be scored again, from one process and from ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rag_rewards_adapters.trl import RagReward
from trl_runs import DOCUMENTS, rows, says, trainer

from rag_rewards import __version__
from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import Models
from rag_rewards.groups import positions_by_key
from rag_rewards.loading import RecipeSpec
from rag_rewards.report.rows import read_rows
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.replay import Variation, replay
from rag_rewards.testing import TableJudge

RIGHT = "<relevance>[1]</relevance><analysis>It is 1.</analysis><answer>Seine</answer>"
TEXTS = (RIGHT, "<answer>the Seine</answer>", "<answer>Rhone</answer>", "no idea")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_dump_has_the_rollouts_of_every_step(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    reward = RagReward("arena", dump=str(path))
    run = trainer(
        tmp_path,
        reward,
        rollout_func=says(*TEXTS),
        eval_dataset=rows(1),
        args={"max_steps": 3, "eval_strategy": "steps", "eval_steps": 3},
    )
    reward.bind(run)
    assert not path.exists()  # the rows that `bind` scores are no rollouts
    run.train()
    reward.scorer.close()

    written = lines(path)
    train = [row for row in written if row["split"] == "train"]
    assert [row["step"] for row in train] == [1] * 4 + [2] * 4 + [3] * 4
    assert [row["weight_version"] for row in train] == [0] * 4 + [1] * 4 + [2] * 4
    logged = [entry["step"] for entry in run.state.log_history if "arena/format" in entry]
    assert logged == [1, 2, 3]
    assert {row["step"] for row in written if row["split"] == "validation"} == {3}
    assert [row["reward"] for row in train[:4]] == [13.0, 1.0, 0.0, 0.0]
    assert {row["split"] for row in written} == {"train", "validation"}
    first = train[0]
    assert first["components"] == {"format": 1.0, "accuracy": 1.0, "relevance": 1.0, "bonus": 10.0}
    assert first["answers"] == ["Seine", "the Seine"]
    assert [document["text"] for document in first["documents"]] == [d["text"] for d in DOCUMENTS]
    assert first["signature"] == f"rag-rewards {__version__} arena"
    for step in (1, 2, 3):
        groups = {row["group"] for row in train if row["step"] == step}
        assert len(groups) == 1


def test_prompts_with_one_question_have_groups_of_their_own(tmp_path: Path) -> None:
    """Rows without an id; their questions are equal, and their documents and prompts differ."""
    path = tmp_path / "rollouts.jsonl"
    reward = RagReward("arena", dump=str(path))
    args = {"max_steps": 1, "per_device_train_batch_size": 16}
    data = rows(4, question="Which river?")
    run = trainer(tmp_path, reward, rollout_func=says(*TEXTS), train_dataset=data, args=args)
    reward.bind(run)
    run.train()
    reward.scorer.close()
    written = positions_by_key(row["group"] for row in lines(path))
    assert [len(members) for members in written.values()] == [4] * 4


@pytest.mark.parametrize("recipe", ["ctrl-rag", "lear", "igpo"])
def test_rewards_with_log_probabilities_are_reproduced_without_the_model(
    tmp_path: Path, recipe: str
) -> None:
    path = tmp_path / "rollouts.jsonl"
    options = {"std_floor": 0.1} if recipe == "lear" else {}
    args = {"scale_rewards": "none"} if options else {}
    reward = RagReward(recipe, dump=str(path), **options)
    run = trainer(tmp_path, reward, rollout_func=says(*TEXTS), args=args)
    reward.bind(run)
    run.train()
    reward.scorer.close()

    file = read_rows(str(path))
    recorded = file.rows
    assert not file.faults
    assert len(recorded) == 8
    scored = Scorer.load(recipe).score_each(recorded)
    assert [score.value for score in scored] == [row.reward for row in recorded]
    assert [score.components for score in scored] == [row.components for row in recorded]
    assert {row.weight_version for row in recorded} == {0, 1}
    result = replay(str(path), Variation(RecipeSpec(), {}))
    assert (result.rows, result.errors, result.changed) == (8, 0, 0)


def test_a_judge_that_fails_and_a_lost_folder_end_no_training(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    calls = 0

    def verdict(question: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 4:
            shutil.rmtree(folder)
        if calls > 4:
            raise BackendError("down")
        return 1

    reward = RagReward(
        "truthrl", dump=str(folder / "rollouts.jsonl"), models=Models(judge=TableJudge(verdict))
    )
    texts = [f"It is river {i}." for i in range(4)]
    run = trainer(tmp_path, reward, rollout_func=says(*texts), args={"max_steps": 2})
    reward.bind(run)
    reward.scorer.dump.flush()
    run.train()
    assert run.state.global_step == 2
