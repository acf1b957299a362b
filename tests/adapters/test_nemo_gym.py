"""NeMo Gym: the rollout of a verify request. The server itself is tested inside NeMo Gym."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from rag_rewards_adapters.nemo_gym import RETRIEVER_ERROR, Verifier, messages_of, rollout_of

from rag_rewards.errors import BackendError, DataError
from rag_rewards.rollout import Rollout

SEARCH = {"type": "function_call", "call_id": "c", "name": "search", "arguments": '{"query": "q"}'}


def text(content: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": content, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": parts}


def thought(content: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": content}]}


def results(content: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": "c", "output": content}


def request(*output: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "Which river?"}]},
        "verifier_metadata": {"id": "7", "answers": ["Seine"]},
        "response": {"output": list(output), "incomplete_details": None},
        **changes,
    }


def rollout(*output: dict[str, Any], **changes: Any) -> Rollout:
    given = rollout_of(request(*output, **changes))
    assert isinstance(given, Rollout), given
    return given


def test_one_message_is_a_response_with_its_reasoning() -> None:
    given = rollout(thought("Paris."), text("<answer>Seine</answer>"))
    assert given.parsed.text == "<think>Paris.</think><answer>Seine</answer>"
    assert given.question == "Which river?"
    assert given.finish_reason == "stop"


def test_calls_and_their_outputs_are_turns() -> None:
    documents = json.dumps([{"id": "1", "title": "Paris", "text": "On the Seine."}])
    given = rollout(thought("I search."), SEARCH, results(documents), text("Seine"))
    first, last = given.steps()
    assert first.queries == ("q",)
    assert [document.text for document in first.results or ()] == ["On the Seine."]
    assert last.text == "Seine"
    assert rollout(SEARCH, results(documents)).finish_reason == "max_turns"


@pytest.mark.parametrize(
    "output",
    [
        [],
        [{"type": "unknown"}],
        [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "refusal", "refusal": "No"}],
            }
        ],
        [{**SEARCH, "arguments": "{"}],
        [{**SEARCH, "name": None, "arguments": None, "call_id": None}],
        [results("not json"), results('{"a": 1}'), results("[" * 2000)],
        [{"type": "message", "role": "user", "content": "Go on."}, text("")],
        [{"type": "reasoning", "summary": None}],
    ],
)
def test_malformed_output_of_a_model_gets_a_reward(output: list[dict[str, Any]]) -> None:
    score = asyncio.run(Verifier({"recipe": "search-r1"}).score(request(*output)))
    assert score.value == 0.0


def test_text_and_calls_of_one_generation_are_one_message() -> None:
    messages = messages_of([text("a"), text("b"), SEARCH, results("[]"), text("c")])
    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant"]
    assert messages[0]["content"] == "ab"
    assert messages[0]["tool_calls"][0]["function"]["name"] == "search"


def test_a_truncated_response() -> None:
    response = {"output": [text("<think>")], "incomplete_details": {"reason": "max_output_tokens"}}
    assert rollout(response=response).finish_reason == "length"


def test_the_fields_of_a_response() -> None:
    verifier = Verifier({"recipe": "arena"})
    answer = "<relevance>[1]</relevance><analysis>x</analysis><answer>Seine</answer>"
    row = {"answers": ["Seine"], "supporting": [1], "documents": [{"id": 1, "text": "Seine."}]}
    score = asyncio.run(verifier.score(request(text(answer), verifier_metadata=row)))
    fields = verifier.fields(score)
    assert fields["reward"] == 13.0
    assert fields["reward_components"] == {
        "format": 1.0,
        "accuracy": 1.0,
        "relevance": 1.0,
        "bonus": 10.0,
    }
    assert fields["arena/accuracy"] == 1.0
    assert fields["arena/correct"] == 1.0


def test_the_failure_of_a_retriever_is_an_error_and_no_reward() -> None:
    failed = json.dumps({RETRIEVER_ERROR: "TimeoutError: no reply"})
    given = rollout_of(request(SEARCH, results(failed), text("<answer>Seine</answer>")))
    assert isinstance(given, BackendError)
    assert "row 7" in str(given)
    assert "the retriever failed: TimeoutError: no reply" in str(given)
    quoted = json.dumps([{"text": failed}])  # a document that contains the words
    assert isinstance(rollout_of(request(SEARCH, results(quoted), text("Seine"))), Rollout)


def test_an_invalid_row_is_named() -> None:
    with pytest.raises(DataError, match="row 7: answers: missing"):
        asyncio.run(
            Verifier({"recipe": "arena"}).score(
                request(text("x"), verifier_metadata={"id": "7", "question": "Which river?"})
            )
        )
    missing = rollout_of({**request(text("x")), "verifier_metadata": None})
    assert "rag-rewards prepare -t nemo-gym" in str(missing)


def test_summed_turn_rewards_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    verifier = Verifier({"recipe": "stepsearch", "settings": {"keys.weight": 0}})
    row = {"answers": ["Seine"], "gold_documents": ["On the Seine."]}
    documents = json.dumps([{"text": "On the Seine."}])
    given = request(
        SEARCH, results(documents), text("<answer>Seine</answer>"), verifier_metadata=row
    )
    for _ in range(2):
        asyncio.run(verifier.score(given))
    assert caplog.text.count("turn rewards are summed") == 1
