"""OpenRLHF's agent executor where OpenRLHF is not installed: options, rewards, weights."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters.openrlhf import reward_function
from rag_rewards_adapters.openrlhf_agent import (
    ExecutorOptions,
    _recipe_and_models,
    _rewards,
    executor,
)
from rag_rewards_adapters.openrlhf_engine import UpdateCounter

import rag_rewards as rr
from rag_rewards.errors import SettingError, UsageError
from rag_rewards.model_options import ModelOptions
from rag_rewards.rollout import Score
from rag_rewards.training.advantages import group_advantages


def test_the_module_imports_without_the_trainer_and_without_torch() -> None:
    code = (
        "import sys, rag_rewards_adapters.openrlhf_agent; "
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'openrlhf', 'vllm')])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no recipe is given"),
        ({"recipe": "arnea"}, "did you mean 'arena'"),
        ({"recipe": "arena", "setings": {}}, "unknown option 'setings'"),
        ({"recipe": "arena", "settings": {"bonus.valeu": 1}}, "bonus.valeu"),
        ({"recipe": "lear", "std_floor": 0.0}, "std_floor must be greater than 0"),
        ({"recipe": "ctrl-rag", "model": "path/to/model"}, "would be loaded by every engine"),
        (
            {"stages": [{"recipe": "ground-grpo-stage1", "until_step": 9}, {"recipe": "arena"}]},
            "does not pass the training step",
        ),
    ],
)
def test_what_cannot_be_used_is_said_when_the_file_is_loaded(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        executor(**options)


def test_a_reward_function_refuses_a_curriculum_as_well() -> None:
    stages = [{"recipe": "naive-grpo", "until_step": 9}, {"recipe": "arena"}]
    with pytest.raises(UsageError, match="does not pass the training step"):
        reward_function(stages=stages)


def test_a_recipe_of_ones_own() -> None:
    own = rr.custom("brief", lambda rollout: float(len(rollout.parsed.text) < 40))
    assert _recipe_and_models({"recipe": own}) == (own, ModelOptions())
    with pytest.raises((UsageError, SettingError), match="without settings"):
        _recipe_and_models({"recipe": own, "settings": {"a": 1}})


def sent(rewards: list[float | None], **options: Any) -> list[float]:
    scores = [None if reward is None else Score(reward) for reward in rewards]
    return _rewards(scores, ExecutorOptions(**options))


def test_rewards_are_sent_as_they_are() -> None:
    assert sent([13.0, 0.5]) == [13.0, 0.5]
    assert sent([13.0, None], error_value=-1.0) == [13.0, -1.0]


def test_with_a_floor_the_advantages_stand_around_the_mean_of_the_rewards() -> None:
    rewards: list[float | None] = [0.5, 0.52, 0.9]
    known = [0.5, 0.52, 0.9]
    found = sent(rewards, std_floor=0.1)
    mean = sum(known) / 3
    assert [value - mean for value in found] == pytest.approx(
        group_advantages(known, std_floor=0.1)
    )
    assert sum(found) / 3 == pytest.approx(mean)
    assert sent([0.4], std_floor=0.1) == [0.4]
    missing = sent([0.5, None, 0.52, 0.9], std_floor=0.1, error_value=0.0)
    assert missing == pytest.approx([found[0], mean, *found[1:]])
    assert sent([None, None], std_floor=0.1, error_value=-1.0) == [-1.0, -1.0]


def test_updates_of_weights_are_counted_on_their_way() -> None:
    sent: list[Any] = []

    async def collective_rpc(method: str, args: Any = ()) -> str:
        sent.append((method, args))
        return "done"

    async def work() -> tuple[int, Any]:
        engine = SimpleNamespace(collective_rpc=collective_rpc)
        updates = UpdateCounter(engine)
        for method in ("init_process_group", "update_weight", "update_weight_cuda_ipc"):
            answer = await engine.collective_rpc(method, args="a")
        return updates.count, answer

    assert asyncio.run(work()) == (2, "done")
    assert sent[0] == ("init_process_group", "a")
