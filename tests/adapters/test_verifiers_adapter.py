"""Recipes as reward functions of verifiers' tasks, called like verifiers calls them.

A function gets the arguments that it names, is awaited, and returns a float.
tests/trainers/verifiers calls them from the real package.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters.verifiers import _fields, reward

from rag_rewards.errors import DataError

REPLY = "<answer>Seine</answer>"


class Data(SimpleNamespace):
    """The fields of verifiers' TaskData that the adapter reads."""

    def model_dump(self) -> dict[str, Any]:
        return dict(vars(self)) | {"prompt": "?", "name": None}

    prompt_text = "Which river?"


class Trace:
    """The fields of verifiers' Trace that the adapter reads."""

    def __init__(self, reply: str | None, thought: str | None = None) -> None:
        messages = [SimpleNamespace(content=reply, reasoning_content=thought)]
        self.assistant_messages = messages if reply is not None else []
        self.last_reply = reply or ""
        self.root_reply: str | None = None
        self.metrics: dict[str, float] = {}
        self.nodes: list[Any] = []

    def record_metrics(self, values: dict[str, float]) -> None:
        self.metrics |= values


def scored(fn: Any, data: Any, trace: Any) -> float:
    """Call the reward as verifiers does: wrapped, with arguments by the names of its parameters."""

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


def test_reasoning_in_the_text_is_read() -> None:
    trace = Trace(f"<think>1</think>{REPLY}")
    assert scored(reward("naive-grpo"), Data(answers=["Seine"]), trace) == 2.0


def test_the_reply_of_the_root_agent_has_no_separate_reasoning() -> None:
    trace = Trace("Loire", thought="of a descendant")
    trace.root_reply = trace.last_reply = REPLY
    assert scored(reward("naive-grpo"), Data(answers=["Seine"]), trace) == 1.0


def test_a_rollout_without_messages_is_an_empty_response() -> None:
    assert scored(reward("naive-grpo"), Data(answers=["Seine"]), Trace(None)) == 0.0


def test_a_missing_gold_field_is_named() -> None:
    with pytest.raises(DataError, match="row 7: answers: missing"):
        scored(reward("naive-grpo"), Data(id="7"), Trace(REPLY))


@pytest.mark.parametrize(
    ("fields", "question"),
    [
        ({}, "Which river?"),
        ({"question": None}, "Which river?"),
        ({"question": "Which, in Paris?"}, "Which, in Paris?"),
    ],
)
def test_the_default_question_is_the_prompt(fields: dict[str, Any], question: str) -> None:
    task = Data(**fields)
    assert _fields(task)["question"] == question


def test_a_reward_with_models_warns_that_groups_are_not_known(caplog: Any) -> None:
    reward("truthrl", settings={"verifier": "exact"})
    assert not caplog.records
    reward("truthrl", judge="http://localhost:1", judge_model="tiny")
    [record] = caplog.records
    assert "truthrl calls models" in record.getMessage()
    assert "EpisodeReward for training" in record.getMessage()
