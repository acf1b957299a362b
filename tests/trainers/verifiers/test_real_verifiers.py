"""The reward of a task in the real verifiers: its task, its trace and its loader."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import Any

import pytest
import verifiers.v1 as vf
from rag_rewards_adapters.verifiers import reward
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, UserMessage

REPLY = "<answer>Seine</answer>"


class RagData(vf.TaskData):
    answers: list[str] | None = None


class RagTask(vf.Task[RagData]):
    pass


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> str:
    mine = ModuleType("my_rewards")
    mine.mine = reward("naive-grpo")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_rewards", mine)
    return "my_rewards:mine"


def run(module: str, answers: list[str] | None) -> Any:
    config = vf.TaskConfig(rewards={"mine": {"fn": module, "weight": 0.5}})
    task = RagTask(RagData(id="7", prompt="Which river?", answers=answers), config)
    reply = AssistantMessage(content=REPLY, reasoning_content="1")
    nodes = [
        MessageNode(message=UserMessage(content="Which river?")),
        MessageNode(parent=0, message=reply, sampled=True),
    ]
    trace = vf.Trace.model_construct(nodes=nodes, rewards={}, metrics={}, root_reply=None)
    try:
        asyncio.run(task.score(trace))
    except Exception as error:
        return trace, error
    return trace, None


def test_the_reward_is_recorded_with_its_weight(module: str) -> None:
    trace, error = run(module, ["Seine"])
    assert error is None
    assert (trace.rewards["mine"].score, trace.rewards["mine"].value) == (2.0, 1.0)
    assert trace.metrics["naive-grpo/accuracy"] == 1.0


def test_an_unscored_rollout_is_none_and_not_zero(module: str) -> None:
    trace, error = run(module, None)
    assert trace.rewards == {"mine": None}
    assert "row 7: answers: missing" in str(error)
