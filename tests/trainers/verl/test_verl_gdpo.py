"""GDPO in verl's V1 trainer: components that are normalized one by one, and flat groups."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import v1_trainer as v1
from omegaconf import OmegaConf
from tensordict import TensorDict
from test_verl_group_loops import engine_of, infos_of, run_worker
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from component_groups import BATCHES, ComponentBatch
from rag_rewards_adapters.verl.credit import SIGNAL, TurnCredit

from rag_rewards import Score, custom, recipe
from rag_rewards.errors import UsageError
from rag_rewards.training.credit import gdpo, whiten

KEYS = "+algorithm.gdpo_reward_keys=[accuracy,format]"
OPTIONS = ("algorithm.adv_estimator=rag_gdpo", KEYS)
LENGTHS = (3, 1, 4, 2)
"""The lengths of the responses of a batch, in turn."""


def config_of(batch: ComponentBatch) -> Any:
    return OmegaConf.create(
        {
            "adv_estimator": "rag_gdpo",
            "gdpo_reward_keys": [*batch.weights],
            "gdpo_reward_weights": [*batch.weights.values()],
        }
    )


def masks_of(batch: ComponentBatch) -> torch.Tensor:
    size = sum(map(len, batch.groups))
    lengths = [LENGTHS[i % len(LENGTHS)] for i in range(size)]
    return torch.tensor([[1] * n + [0] * (max(lengths) - n) for n in lengths])


def advantages_of(batch: ComponentBatch) -> torch.Tensor:
    """Return the advantages of verl for the values that `rag_group` writes."""
    credit = TurnCredit.of(config_of(batch))
    mask = masks_of(batch)
    scores = [[Score(0.0, member) for member in group] for group in batch.groups]
    own = [value[0] for group in scores for value in credit.advantages(group, []) or [[0.0]]]
    data = DataProto(
        batch=TensorDict(
            {
                "token_level_rewards": torch.tensor(own)[:, None] * mask,
                "response_mask": mask,
            },
            [len(own)],
        ),
        non_tensor_batch={"uid": uids_of(batch)},
    )
    keys = [f"{uid}_{row}_0" for row, uid in enumerate(uids_of(batch))]
    config = config_of(batch)
    result = compute_advantage_for_multi_trajectories(data, keys, "rag_gdpo", config=config)
    return result.batch["advantages"]


def uids_of(batch: ComponentBatch) -> Any:
    uids = [f"q{g}" for g, group in enumerate(batch.groups) for _ in group]
    return np.array(uids, dtype=object)


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch.name)
def test_advantages_equal_those_of_gdpo(batch: ComponentBatch) -> None:
    mask = masks_of(batch)
    sums = [member for group in batch.normalized("verl") for member in group]
    expected = whiten(sums, [[int(row.sum())] for row in mask], preset="verl")
    for row, own, (golden,) in zip(advantages_of(batch).tolist(), mask, expected, strict=True):
        assert row == pytest.approx([golden * float(m) for m in own], abs=1e-5)


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch.name)
def test_advantages_equal_those_of_the_function_of_verl(batch: ComponentBatch) -> None:
    members = [member for group in batch.groups for member in group]
    if any(value is None for member in members for value in member.values()):
        pytest.skip("verl has no missing component")
    mask = masks_of(batch)
    expected, _ = core_algos.compute_gdpo_outcome_advantage(
        token_level_rewards=torch.zeros(mask.shape),
        response_mask=mask,
        index=uids_of(batch),
        config=config_of(batch),
        non_tensor_batch={
            name: np.array([member[name] for member in members]) for name in batch.weights
        },
        batch={
            "prompts": torch.zeros(len(members), 1),
            "attention_mask": torch.cat([torch.ones(len(members), 1, dtype=torch.int64), mask], 1),
        },
    )
    torch.testing.assert_close(advantages_of(batch), expected, atol=1e-3, rtol=1e-3)


def test_the_estimator_gdpo_of_verl_fails_in_its_v1_trainer(monkeypatch) -> None:
    """The trainer reads neither the prompts nor the components, which its estimator requires."""
    mask = torch.ones(4, 2, dtype=torch.int64)
    fields = TensorDict(
        {
            "response_mask": torch.nested.as_nested_tensor([*mask], layout=torch.jagged),
            "rm_scores": torch.nested.as_nested_tensor([*mask.float()], layout=torch.jagged),
        },
        [4],
    )
    fields["uid"] = ["q"] * 4
    read: list[str] = []

    def kv_batch_get(keys, partition_id, select_fields):
        read.extend(select_fields)
        return fields

    monkeypatch.setattr(trainer_base, "tq", SimpleNamespace(kv_batch_get=kv_batch_get))
    config = OmegaConf.create(
        {
            "algorithm": {
                "adv_estimator": "gdpo",
                "gdpo_reward_keys": ["accuracy"],
                "use_kl_in_reward": False,
                "gamma": 1.0,
                "lam": 1.0,
            },
            "actor_rollout_ref": {"rollout": {"n": 4}},
        }
    )
    batch = SimpleNamespace(keys=[f"q_{i}_0" for i in range(4)], partition_id="train")
    trainer = SimpleNamespace(config=config)
    with pytest.raises(KeyError, match="prompts"):
        trainer_base.PPOTrainer._compute_advantage(trainer, batch, {})
    assert not {"prompts", "extra_fields", "accuracy"} & set(read)


# --- the agent loop ------------------------------------------------------------------------------


def test_the_loop_writes_the_sum_of_normalized_components(monkeypatch, model):
    texts = [v1.arena("Seine"), v1.arena("Rhone"), "no format"]
    engine = engine_of(model, {"Paris": texts})
    config = v1.configuration(model, "arena", *OPTIONS)
    queue = run_worker(monkeypatch, config, engine, [v1.question("Paris")])
    infos = infos_of(queue)
    members = [{name: [info[name]] for name in ("accuracy", "format")} for info in infos]
    expected = gdpo(members)
    assert len({member[0] for member in expected}) == 3
    for session, (golden,) in zip(queue.sessions("uid-0"), expected, strict=True):
        assert session.reward == pytest.approx([golden] * len(session.response), abs=1e-6)
    assert sorted(info["rag_value"] for info in infos) == [0.0, 2.0, 13.0]
    assert sorted(info[SIGNAL] for info in infos) == [0.0, 0.0, 3.0]


def test_a_flat_group_has_no_signal(monkeypatch, model):
    engine = engine_of(model, {"Paris": [v1.arena("Seine")]})
    config = v1.configuration(model, "arena", *OPTIONS)
    infos = infos_of(run_worker(monkeypatch, config, engine, [v1.question("Paris")]))
    assert [info[SIGNAL] for info in infos] == [0.0] * 3


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("algorithm.adv_estimator=rag_gdpo",), r"set \+algorithm\.gdpo_reward_keys"),
        (
            ("algorithm.adv_estimator=rag_gdpo", "+algorithm.gdpo_reward_keys=[acuracy]"),
            "no component 'acuracy'; did you mean 'accuracy'",
        ),
        ((OPTIONS[0], "+algorithm.gdpo_reward_keys=accuracy"), r"gdpo_reward_keys=\[NAME,NAME\]"),
        ((OPTIONS[0], "+algorithm.gdpo_reward_keys=[format,format]"), "each component once"),
        (
            (*OPTIONS, "+algorithm.gdpo_reward_weights=[1]"),
            "one weight for each of the 2",
        ),
        ((*OPTIONS, "+algorithm.gdpo_reward_weights=[1,nan]"), r"weights\[1\]=nan: set a finite"),
        ((*OPTIONS, "+algorithm.gdpo_reward_weights=[1,high]"), r"weights\[1\]=high: set a finite"),
        ((*OPTIONS, "algorithm.filter_groups.enable=True"), f"metric={SIGNAL}"),
    ],
)
def test_wrong_settings_are_named(monkeypatch, model, caplog, options, why):
    engine = engine_of(model, {"Paris": [v1.arena("Seine")]})
    config = v1.configuration(model, "arena", *options)
    queue = run_worker(monkeypatch, config, engine, [v1.question("Paris")])
    assert queue.status("uid-0") == "failure"
    assert re.search(why, caplog.text), caplog.text


def test_acc_requires_a_recipe_that_defines_a_correct_answer() -> None:
    """The advantage of a component without any value would be 0."""
    algorithm = {"adv_estimator": "rag_gdpo", "gdpo_reward_keys": ["acc"]}
    config = OmegaConf.create({"algorithm": algorithm, "trainer": {"use_v1": True}})
    TurnCredit.of_training(config, recipe("arena"))
    own = custom("own", lambda rollout: 1.0)
    with pytest.raises(UsageError, match=r"no component 'acc'.*own has "):
        TurnCredit.of_training(config, own)


def test_a_reward_worker_refuses_an_estimator_of_the_loop(model):
    manager = get_reward_manager_cls("rag_rewards")(
        v1.configuration(model, "arena", *OPTIONS), None
    )
    with pytest.raises(UsageError, match="default_agent_loop=rag_group"):
        asyncio.run(manager.run_single([]))


# --- the filter of groups ------------------------------------------------------------------------


def test_a_filter_without_effect_is_refused(model):
    filters = "algorithm.filter_groups.enable=True"
    sampler = [
        f"trainer.v1.sampler.custom_sampler.path={v1.SAMPLER}",
        "trainer.v1.sampler.custom_sampler.name=RagReplayBuffer",
        "trainer.use_v1=True",
    ]
    metric = "+trainer.v1.sampler.sampler_kwargs.filter_groups_metric="
    config = v1.configuration(model, "arena", *OPTIONS, filters, *sampler)
    credit = TurnCredit.of(config.algorithm)
    with pytest.raises(UsageError, match=f"filter_groups_metric={SIGNAL}"):
        credit.check_config(config)
    config = v1.configuration(model, "arena", *OPTIONS, filters, *sampler, f"{metric}{SIGNAL}")
    credit.check_config(config)


# --- curricula -----------------------------------------------------------------------------------


def test_stages_with_different_credit_require_a_method() -> None:
    stages = [recipe("search-r1").settings, recipe("stepsearch").settings]
    algorithm = {"adv_estimator": "rag_turn_given"}
    with pytest.raises(UsageError, match=r"different credit: set \+algorithm\.rag_turn\.method"):
        TurnCredit.of(algorithm, stages)
    given = TurnCredit.of(algorithm | {"rag_turn": {"method": "return"}}, stages)
    for credit in (given, TurnCredit.of(algorithm, stages[1:] * 2)):
        assert credit.method is not None
        assert credit.method.method == "return"
    discounted = recipe("stepsearch", {"credit.gamma": 0.5}).settings
    with pytest.raises(UsageError, match=r"set \+algorithm\.rag_turn\.gamma=0\.5"):
        TurnCredit.of({"adv_estimator": "rag_turn_return"}, [stages[1], discounted])
