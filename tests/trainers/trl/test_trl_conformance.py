"""The golden groups in the rewards and advantages of GRPOTrainer, without its generation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from rag_rewards_adapters.trl import RagReward
from trl_runs import trainer

from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.testing import TableEntailment, TableJudge, TablePolicy

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[3] / "docs"))

import golden
from build_matrix import STD_FLOOR, cell

MODELS = Models(
    policy=TablePolicy({}), entailment=TableEntailment({}), judge=TableJudge(lambda question: 0)
)
"""Models of each kind. The golden rows contain their evidence."""
COLUMNS = (*golden.GOLD, "id")
FLOOR = 0.3


@pytest.fixture(scope="module")
def make_trainer(tmp_path_factory: Any) -> Callable[[int, str], Any]:
    """Return a function that creates one trainer per group size and scaling.

    Only an evaluation can have groups of one.
    """

    @lru_cache
    def make(size: int, scale: str) -> Any:
        args = {
            "num_generations": max(size, 2),
            "num_generations_eval": size,
            "per_device_train_batch_size": max(size, 2),
            "per_device_eval_batch_size": size,
            "scale_rewards": scale,
        }
        run = trainer(tmp_path_factory.mktemp("run"), RagReward("arena"), args=args)
        run.model.train(size > 1)
        return run

    return make


def completion(row: dict[str, Any]) -> Any:
    """Return the completion as the trainer passes it: text, or the messages of its tool loop."""
    response = row["response"]
    return response if isinstance(response, str) else [dict(message) for message in response]


def prompt(row: dict[str, Any]) -> Any:
    if isinstance(row["response"], str):
        return row["question"] + "\n" + row.get("response_prefix", "")
    return [{"role": "user", "content": row["question"]}]


def rewards_in_trainer(run: Any, reward: RagReward, group: golden.Group) -> list[float]:
    """Return the advantages that the trainer computes for a group of these completions."""
    reward.scorer.gatherer = golden.EvidenceGatherer(group)  # type: ignore[assignment]
    inputs = [{"prompt": prompt(r), **{name: r.get(name) for name in COLUMNS}} for r in group.rows]
    end = run.processing_class.eos_token_id
    last = [6 if row.get("finish_reason") == "length" else end for row in group.rows]
    ids = [[5, 6, 7, token] for token in last]  # as many as the golden log-probabilities
    completions = [completion(row) for row in group.rows]
    count = len(group.rows)
    run._generate = lambda _: ([[4]] * count, ids, None, completions, None, {}, None, [])
    advantages: list[float] = run._generate_and_score_completions(inputs)["advantages"].tolist()
    return advantages


def reward_in(run: Any, group: golden.Group, **options: Any) -> RagReward:
    reward = RagReward(group.recipe, settings=group.settings, models=MODELS, **options)
    run.reward_funcs, run.reward_func_names = [reward], [reward.__name__]
    reward.bind(run)
    return reward


def advantages_in_trainer(run: Any, reward: RagReward, group: golden.Group) -> list[float]:
    """Return the advantages after a first batch without errors."""
    whole = next(g for g in golden.GROUPS if g.recipe == group.recipe and g.case == "whole group")
    if len(whole.rows) == len(group.rows):
        rewards_in_trainer(run, reward, whole)
    return rewards_in_trainer(run, reward, group)


@pytest.mark.parametrize("group", golden.GROUPS, ids=lambda group: group.id)
class TestAdvantages:
    def test_advantages_with_scaling(self, make_trainer: Any, group: golden.Group) -> None:
        run = make_trainer(len(group.rows), "group")
        values = advantages_in_trainer(run, reward_in(run, group), group)
        expected = golden.advantages(group, sample=True, epsilon=1e-4)
        assert values == pytest.approx(expected, abs=1e-4)

    def test_advantages_without_scaling(self, make_trainer: Any, group: golden.Group) -> None:
        run = make_trainer(len(group.rows), "none")
        values = advantages_in_trainer(run, reward_in(run, group), group)
        assert values == pytest.approx(golden.centred(group), abs=1e-5)

    def test_advantages_with_std_floor(self, make_trainer: Any, group: golden.Group) -> None:
        run = make_trainer(len(group.rows), "none")
        values = advantages_in_trainer(run, reward_in(run, group, std_floor=FLOOR), group)
        assert values == pytest.approx(golden.advantages(group, std_floor=FLOOR), abs=1e-5)


# --- the matrix --------------------------------------------------------------------------------


def batch(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rows as the trainer passes them to a reward."""
    named = {name: [row.get(name) for row in rows] for name in COLUMNS}
    return {
        "prompts": [prompt(row) for row in rows],
        "completions": [completion(row) for row in rows],
        **named,
    }


@pytest.mark.parametrize("recipe", golden.RECIPES)
def test_the_column_of_this_trainer(make_trainer: Any, recipe: str) -> None:
    """A recipe works without settings, or the error names a model or `bind`."""
    entry, rows = cell(recipe, "trl"), golden.bare(recipe)
    whole = next(group for group in golden.GROUPS if group.id == f"{recipe}: whole group")
    reward = RagReward(recipe)
    if entry.state == "works":
        assert reward(**batch(rows)) == pytest.approx(whole.rewards)
        return
    assert entry.state == "setting"
    with pytest.raises(UsageError, match=r"reward\.bind\(trainer\)|nli=|judge="):
        reward(**batch(rows))
    if "bind" in entry.text:
        run = make_trainer(len(rows), "group")
        run.reward_funcs, run.reward_func_names = [reward], [reward.__name__]
        reward.bind(run)
        assert reward.scorer.models.policy.model is run.model  # type: ignore[union-attr]


def test_the_advantage_of_lear_in_this_trainer(make_trainer: Any) -> None:
    assert all(word in STD_FLOOR["trl"].text for word in ("std_floor", 'scale_rewards="none"'))
    whole = next(group for group in golden.GROUPS if group.id == "lear: whole group")
    run = make_trainer(len(whole.rows), "none")
    values = advantages_in_trainer(run, reward_in(run, whole, std_floor=0.1), whole)
    assert values == pytest.approx(golden.advantages(whole, std_floor=0.1), abs=1e-5)
