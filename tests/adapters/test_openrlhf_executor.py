"""The agent executor of OpenRLHF without OpenRLHF: options, rewards and weights."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from processes import WAIT_SECONDS
from rag_rewards_adapters.openrlhf import reward_function
from rag_rewards_adapters.openrlhf.agent import (
    _read_options,
    _rewards,
    executor,
)
from rag_rewards_adapters.openrlhf.engine import UpdateCounter

import rag_rewards as rr
from rag_rewards.errors import SettingError, UsageError
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.rollout import Score
from rag_rewards.training.advantages import group_advantages


def test_the_module_imports_without_torch_and_the_trainer() -> None:
    code = (
        "import sys, rag_rewards_adapters.openrlhf_agent; "
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'openrlhf', 'vllm')])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
    )
    assert process.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no recipe is given"),
        ({"recipe": "arnea"}, "did you mean 'arena'"),
        ({"recipe": "arena", "setings": {}}, "unknown option 'setings'"),
        ({"recipe": "arena", "settings": {"bonus.valeu": 1}}, "bonus.valeu"),
        ({"recipe": "lear", "std_floor": 0.0}, "std_floor must be greater than 0"),
        ({"recipe": "ctrl-rag", "model": "path/to/model"}, "would be loaded by every engine"),
    ],
)
def test_invalid_options_are_refused_when_the_file_is_loaded(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        executor(**options)


@pytest.mark.parametrize(
    "recipe", ["naive-grpo", rr.recipe("naive-grpo"), {"recipe": "naive-grpo"}]
)
def test_a_reward_function_accepts_a_recipe_in_any_form(recipe: Any) -> None:
    label = '{"answers": "a"}'
    reward = reward_function(recipe)
    assert reward(["Q?<think></think><answer>a</answer>"], ["Q?"], [label])["rewards"] == 2.0


def test_a_custom_recipe() -> None:
    own = rr.custom("brief", lambda rollout: float(len(rollout.parsed.text) < 40))
    assert _read_options({"recipe": own}) == (own, ModelOptions(), None)
    with pytest.raises((UsageError, SettingError), match="without settings"):
        _read_options({"recipe": own, "settings": {"a": 1}})


def rewards_of(
    rewards: list[float | None],
    std_floor: float | None = None,
    error_value: float | None = None,
) -> list[float]:
    scores = [None if reward is None else Score(reward) for reward in rewards]
    return _rewards(scores, std_floor, error_value)


def test_rewards_without_std_floor() -> None:
    assert rewards_of([13.0, 0.5]) == [13.0, 0.5]
    assert rewards_of([13.0, None], error_value=-1.0) == [13.0, -1.0]


def test_rewards_with_std_floor_are_the_mean_plus_the_advantage() -> None:
    rewards: list[float | None] = [0.5, 0.52, 0.9]
    scored = [0.5, 0.52, 0.9]
    rewards_with_floor = rewards_of(rewards, std_floor=0.1)
    mean = sum(scored) / 3
    assert [value - mean for value in rewards_with_floor] == pytest.approx(
        group_advantages(scored, std_floor=0.1)
    )
    assert sum(rewards_with_floor) / 3 == pytest.approx(mean)
    assert rewards_of([0.4], std_floor=0.1) == [0.4]
    missing = rewards_of([0.5, None, 0.52, 0.9], std_floor=0.1, error_value=0.0)
    assert missing == pytest.approx([rewards_with_floor[0], mean, *rewards_with_floor[1:]])
    assert rewards_of([None, None], std_floor=0.1, error_value=-1.0) == [-1.0, -1.0]


def test_weight_updates_are_counted() -> None:
    calls: list[Any] = []

    async def collective_rpc(method: str, args: Any = ()) -> str:
        calls.append((method, args))
        return "done"

    async def work() -> tuple[int, Any]:
        engine = SimpleNamespace(collective_rpc=collective_rpc)
        updates = UpdateCounter(engine)
        for method in ("init_process_group", "update_weight", "update_weight_cuda_ipc"):
            answer = await engine.collective_rpc(method, args="a")
        return updates.count, answer

    assert asyncio.run(work()) == (2, "done")
    assert calls[0] == ("init_process_group", "a")
