"""Recipes as reward functions of verifiers' tasks.

Run inside the real package where it is installed (pip install verifiers), and by its rules
everywhere: functions get the arguments that they name, are awaited, and their result is a float.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters.verifiers import _fields, reward

from rag_rewards.errors import DataError, UsageError

REPLY = "<answer>Seine</answer>"


class Data(SimpleNamespace):
    """A task's data: what is used of verifiers' TaskData."""

    def model_dump(self) -> dict[str, Any]:
        return dict(vars(self)) | {"prompt": "?", "name": None}

    prompt_text = "Which river?"


class Trace:
    """A trace: what is used of verifiers' Trace."""

    def __init__(self, reply: str | None, thought: str | None = None) -> None:
        said = [SimpleNamespace(content=reply, reasoning_content=thought)]
        self.assistant_messages = said if reply is not None else []
        self.last_reply = reply or ""
        self.root_reply: str | None = None
        self.metrics: dict[str, float] = {}

    def record_metrics(self, values: dict[str, float]) -> None:
        self.metrics |= values


def scored(fn: Any, data: Any, trace: Any) -> float:
    """Plugged in and invoked as verifiers does: wrapped, by the names of its parameters."""

    @functools.wraps(fn)
    def plugged(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    available = {"task": data, "trace": trace, "runtime": None}
    named = {name: available[name] for name in inspect.signature(plugged).parameters}

    async def invoked() -> Any:
        return await asyncio.gather(plugged(**named))

    return float(asyncio.run(invoked())[0])


def test_the_last_reply_is_scored_and_components_become_metrics() -> None:
    trace = Trace(REPLY, thought="1")
    assert scored(reward("naive-grpo"), Data(answers=["Seine"]), trace) == 2.0
    assert trace.metrics == {"naive-grpo/format": 1.0, "naive-grpo/accuracy": 1.0}


def test_reasoning_that_stays_in_the_text_is_read_there() -> None:
    trace = Trace(f"<think>1</think>{REPLY}")
    assert scored(reward("naive-grpo"), Data(answers=["Seine"]), trace) == 2.0


def test_the_reply_of_the_root_agent_has_no_thought_of_another() -> None:
    trace = Trace("Loire", thought="of a descendant")
    trace.root_reply = trace.last_reply = REPLY
    assert scored(reward("naive-grpo"), Data(answers=["Seine"]), trace) == 1.0


def test_a_rollout_that_said_nothing_is_an_empty_response() -> None:
    assert scored(reward("naive-grpo"), Data(answers=["Seine"]), Trace(None)) == 0.0


def test_gold_that_lacks_a_field_is_an_error_with_its_name() -> None:
    with pytest.raises(DataError, match="row 7: answers: missing"):
        scored(reward("naive-grpo"), Data(id="7"), Trace(REPLY))


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, "Which river?"),
        ({"question": None}, "Which river?"),
        ({"question": "Which, in Paris?"}, "Which, in Paris?"),
    ],
)
def test_what_the_prompt_asks_is_the_question_where_no_field_says_it(
    given: dict[str, Any], asked: str
) -> None:
    task = Data(**given)
    assert _fields(task)["question"] == asked


def test_recipes_that_compare_a_group_are_refused_when_the_module_is_imported() -> None:
    with pytest.raises(UsageError, match="compares the rollouts of a group"):
        reward("ctrl-rag")


@pytest.mark.skipif(find_spec("verifiers") is None, reason="verifiers is not installed")
class TestInsideVerifiers:
    """The real task, trace and loader."""

    @pytest.fixture
    def module(self, monkeypatch: pytest.MonkeyPatch) -> str:
        mine = ModuleType("my_rewards")
        mine.mine = reward("naive-grpo")  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "my_rewards", mine)
        return "my_rewards:mine"

    def run(self, module: str, answers: list[str] | None) -> Any:
        import verifiers.v1 as vf
        from verifiers.v1.graph import MessageNode
        from verifiers.v1.types import AssistantMessage, UserMessage

        class RagData(vf.TaskData):
            answers: list[str] | None = None

        class RagTask(vf.Task[RagData]):
            pass

        config = vf.TaskConfig(rewards={"mine": {"fn": module, "weight": 0.5}})
        task = RagTask(RagData(id="7", prompt="Which river?", answers=answers), config)
        said = AssistantMessage(content=REPLY, reasoning_content="1")
        nodes = [
            MessageNode(message=UserMessage(content="Which river?")),
            MessageNode(parent=0, message=said, sampled=True),
        ]
        trace = vf.Trace.model_construct(nodes=nodes, rewards={}, metrics={}, root_reply=None)
        try:
            asyncio.run(task.score(trace))
        except Exception as error:
            return trace, error
        return trace, None

    def test_the_reward_is_recorded_with_its_weight(self, module: str) -> None:
        trace, error = self.run(module, ["Seine"])
        assert error is None
        assert (trace.rewards["mine"].score, trace.rewards["mine"].value) == (2.0, 1.0)
        assert trace.metrics["naive-grpo/accuracy"] == 1.0

    def test_what_has_no_score_is_none_and_never_zero(self, module: str) -> None:
        trace, error = self.run(module, None)
        assert trace.rewards == {"mine": None}
        assert "row 7: answers: missing" in str(error)
