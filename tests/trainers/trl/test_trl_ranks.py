"""Groups, weights and metrics on several ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters.trl import RagReward
from trl_runs import reports_of_ranks, rows, trainer

from rag_rewards.errors import UsageError


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: Any) -> list[dict[str, Any]]:
    """Return the reports of two processes of data-parallel training over gloo."""
    return reports_of_ranks("rank.py", tmp_path_factory.mktemp("ranks"))


def test_every_rank_scores_its_own_groups(
    ranks: list[dict[str, Any]],
) -> None:
    for rank in ranks:
        assert rank["wrapped"] == "DistributedDataParallel"
        assert [len(values) for values in rank["history"]] == [4, 4]
        for values, expected in zip(rank["history"], rank["expected"], strict=True):
            assert values == pytest.approx(expected, abs=1e-3)
    first, second = ranks
    assert first["history"] != second["history"]
    assert first["versions"] == second["versions"]
    assert first["versions"][0][1] != first["versions"][1][1]


def test_the_trainer_gathers_the_rewards_of_all_ranks(ranks: list[dict[str, Any]]) -> None:
    first, second = ranks
    both = first["history"][-1] + second["history"][-1]
    assert first["rewards"][-8:] == pytest.approx(both)
    assert first["logged"]["ctrl-rag-clr/clr"] == pytest.approx(sum(both) / 8)


def test_the_displacement_is_the_mean_over_the_responses_of_all_ranks(
    ranks: list[dict[str, Any]],
) -> None:
    changes = [change for rank in ranks for change in rank["displacement"]["changes"]]
    assert len(changes) == 2
    assert changes[0] != changes[1]
    for rank in ranks:
        assert rank["displacement"]["logged"] == pytest.approx(sum(changes) / 2)


def test_groups_on_two_ranks_are_refused(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert "a rank has 2 completions" in rank["refused"]
        assert "multiple of 4" in rank["refused"]


def test_sharded_weights_are_refused_and_a_server_is_named(tmp_path: Any, monkeypatch: Any) -> None:
    for name, change in (("FSDP", "fsdp"), ("ZeRO-3", "deepspeed")):
        reward = RagReward("ctrl-rag")
        run = trainer(tmp_path, reward)
        if change == "fsdp":
            run.is_fsdp_enabled = True
        else:
            plugins = type(run.accelerator.state)
            monkeypatch.setattr(
                plugins, "deepspeed_plugin", SimpleNamespace(zero_stage=3), raising=False
            )
        with pytest.raises(UsageError, match=rf'{name}.*model="http.*backend="vllm"'):
            reward.bind(run)


def test_sharded_weights_are_accepted_for_rules(tmp_path: Any) -> None:
    reward = RagReward("arena")
    run = trainer(tmp_path, reward)
    run.is_fsdp_enabled = True
    reward.bind(run)


FLOORED = {"recipe": "arena", "std_floor": 0.1}
NORMALIZED = {"scale_rewards": "none", "multi_objective_aggregation": "normalize_then_sum"}


@pytest.mark.parametrize(
    ("options", "args", "why"),
    [
        (
            {"recipe": "ctrl-rag", "group_size": 8},
            {},
            "group_size=8, but the trainer has num_generations=4",
        ),
        (
            {"recipe": "ctrl-rag"},
            {"per_device_eval_batch_size": 6},
            "per_device_eval_batch_size=6.*num_generations_eval=4",
        ),
        ({"recipe": "arena"}, {"remove_unused_columns": True}, "remove_unused_columns=False"),
        (FLOORED, {}, 'scale_rewards="none"'),
        (FLOORED, NORMALIZED, "sum_then_normalize"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Any, options: dict[str, Any], args: dict[str, Any], why: str
) -> None:
    reward = RagReward(**options)
    with pytest.raises(UsageError, match=why):
        reward.bind(trainer(tmp_path, reward, args=args, eval_dataset=rows(2)))


def test_equal_reward_names_are_refused(tmp_path: Any) -> None:
    rewards = [RagReward("arena"), RagReward("arena", hardened=True)]
    with pytest.raises(UsageError, match="name="):
        rewards[0].bind(trainer(tmp_path, rewards))


@pytest.mark.parametrize(
    ("recipe", "way_out"), [("truthrl", "judge="), ("ground-grpo", "nli="), ("lear", None)]
)
def test_a_missing_model_is_named_before_training(
    tmp_path: Any, recipe: str, way_out: str | None
) -> None:
    reward = RagReward(recipe)
    run = trainer(tmp_path, reward)
    if way_out is None:
        reward.bind(run)
        assert reward.scorer.models.policy.model is run.model
    else:
        with pytest.raises(UsageError, match=way_out):
            reward.bind(run)
