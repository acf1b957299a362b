"""Compositions of recipes, and several rewards, in the real trainer."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import Dataset
from rag_rewards_adapters.trl import RagReward
from trl_runs import DOCUMENTS, rows, says, trainer

import rag_rewards as rr

SAID = ("<relevance>[1]</relevance><analysis>x</analysis><answer>Seine</answer>", "no")


def arena_rows() -> Dataset:
    """Rows whose prompts were rendered with the prompt of arena, whose documents have no titles."""
    data = []
    for i, row in enumerate(rows()):
        row["question"] = f"Which river runs through Paris ({i})?"
        rollout = rr.Rollout(
            question=row["question"],
            response="",
            documents=tuple(rr.Document(**document) for document in DOCUMENTS),
        )
        data.append(row | {"prompt": rr.recipe("arena").prompt.messages(rollout)})
    return Dataset.from_list(data)


def logged(folder: Any, rewards: Any, data: Any = None) -> dict[str, Any]:
    args = {"max_steps": 1, "max_completion_length": 48}
    run = trainer(
        folder,
        rewards,
        rollout_func=says(*SAID),
        args=args,
        train_dataset=data or arena_rows(),
    )
    for reward in rewards if isinstance(rewards, list) else [rewards]:
        reward.bind(run)
    run.train()
    log: dict[str, Any] = run.state.log_history[0]
    return log


def test_the_components_of_inner_recipes_are_logged(tmp_path: Any) -> None:
    arena, truthrl = rr.recipe("arena"), rr.recipe("truthrl", {"verifier": "substring"})
    mixed = rr.custom("mixed", rr.weighted((1.0, arena), (0.5, truthrl)))
    log = logged(tmp_path, RagReward(mixed))
    assert log["mixed/arena/correct"] == 0.5
    assert log["mixed/arena/accuracy"] == 0.5
    assert log["mixed/truthrl/outcome"] == -1.0
    assert log["mixed/truthrl"] == -1.0


def test_a_document_is_left_out_of_the_prompt_of_another_recipe(tmp_path: Any) -> None:
    """ctrl-rag writes the titles of documents, and the prompts of arena do not."""
    mixed = rr.custom(
        "mixed", rr.weighted((1.0, rr.recipe("ctrl-rag")), (0.5, rr.recipe("naive-grpo")))
    )
    log = logged(tmp_path, RagReward(mixed))
    assert log["mixed/not_scored"] == 0
    assert "mixed/ctrl-rag/clr" in log


def bind(folder: Any, data: Any, **args: Any) -> None:
    reward = RagReward("ctrl-rag")
    run = trainer(folder, reward, args={"max_steps": 1, **args}, train_dataset=data)
    reward.bind(run)


def test_bind_checks_the_form_of_the_prompts(tmp_path: Any) -> None:
    data = rows().map(lambda row: {"prompt": [{"role": "user", "content": "Which river?"}]})
    with pytest.raises(rr.DataError, match=r"0 of train_dataset.*document 1 cannot be left out"):
        bind(tmp_path, data)


def test_bind_checks_the_length_of_the_prompts(tmp_path: Any) -> None:
    with pytest.raises(rr.DataError, match="decrease max_completion_length"):
        bind(tmp_path, rows(), max_completion_length=100_000)
