"""NeMo Gym: the rollout of a verify request. The server itself is tested inside NeMo Gym."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from typing import Any

import pytest
from rag_rewards_adapters import nemo_gym
from rag_rewards_adapters.nemo_gym import (
    EVIDENCE,
    RETRIEVER_ERROR,
    Verifier,
    messages_of,
    rollout_of,
)

from rag_rewards.errors import BackendError, DataError, RowError, UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.rollout import Rollout
from rag_rewards.testing import TableJudge

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


# --- groups --------------------------------------------------------------------------------------

LIKELIHOOD = {"model": "http://127.0.0.1:9", "backend": "vllm"}
DOCUMENTS = [{"id": 1, "title": "Paris", "text": "On the Seine."}, {"id": 2, "text": "Rivers."}]


def member(index: int, prompt: str = "p", **changes: Any) -> dict[str, Any]:
    """Return a request of ctrl-rag with its evidence: E/√4 = 2·index, for index 0, 1, 2, …"""
    evidence = {
        "logprobs": {
            "full": [-0.25] * 4,
            "without": {"1": [-0.25 - index] * 4, "2": [-0.25] * 4},
        }
    }
    given = request(
        text(f"<think>{index}.</think>The Seine [1]."),
        _ng_task_index=prompt,
        _ng_rollout_index=index,
        **changes,
    )
    given["verifier_metadata"] |= {"documents": DOCUMENTS, "supporting": [1, 2]}
    given["response"]["metadata"] = {EVIDENCE: json.dumps(evidence)}
    return given


def verified(verifier: Verifier, *requests: dict[str, Any]) -> list[Any]:
    async def all_at_once() -> list[Any]:
        tasks = (verifier.verify(each) for each in requests)
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(all_at_once())


def of_groups(**changes: Any) -> Verifier:
    recipe = {"recipe": "ctrl-rag", **LIKELIHOOD}
    return Verifier(recipe, **{"group_size": 3, "group_deadline": 0.2, **changes})


def test_the_rollouts_of_prompts_are_scored_together_in_any_order() -> None:
    verifier = of_groups()
    order = [(prompt, index) for prompt in "abcd" for index in range(3)]
    random.Random(0).shuffle(order)
    fields = verified(verifier, *(member(index, prompt) for prompt, index in order))
    rewards = {0: 0.0, 1: 0.5, 2: 1.0}  # (R - min)/(max - min)
    expected = [rewards[index] for _, index in order]
    assert [each["reward"] for each in fields] == pytest.approx(expected)
    assert all("_ng_failure_class" not in each for each in fields)
    assert (verifier.groups.active, verifier.groups.waiting, verifier._requests) == ({}, 0, {})


def test_a_request_that_is_sent_again_joins_no_other_group() -> None:
    """NeMo Gym sends it again after a lost connection, whose handler may be cancelled."""
    verifier = of_groups(group_deadline=5.0)

    async def scenario() -> list[Any]:
        first = asyncio.ensure_future(verifier.verify(member(0)))
        again = asyncio.ensure_future(verifier.verify(copy.deepcopy(member(0))))
        await asyncio.sleep(0.01)
        first.cancel()
        others = [verifier.verify(member(index)) for index in (1, 2)]
        scored = await asyncio.gather(again, *others)
        scored.append(await verifier.verify(copy.deepcopy(member(1))))  # after its group
        return [each["reward"] for each in scored]

    assert asyncio.run(scenario()) == pytest.approx([0.0, 0.5, 1.0, 0.5])


def test_a_failure_is_the_result_of_a_repeated_request_for_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Later, the same request verifies the response again, for example after a repair."""
    judge = FlakyJudge()
    verifier = of_judge(judge, group_size=2, group_deadline=5.0)
    rows = [judged(index, answer) for index, answer in enumerate(("Seine", "down"))]
    failed, requests = verified(verifier, *rows), len(judge.requests)
    assert verified(verifier, rows[0]) == failed[:1]
    assert (len(judge.requests), verifier._failures) == (requests, 1)
    verifier._finished.clear()
    monkeypatch.setattr(nemo_gym, "REPEAT", 0.0)
    for failures in (2, 3):
        assert verified(verifier, *rows) == failed
        assert verifier._failures == failures
    assert len(judge.requests) > requests


def test_the_number_of_results_for_repeated_requests_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nemo_gym, "WAITING", 4)
    verifier = of_groups(group_deadline=60.0)
    verified(verifier, *(member(index, prompt) for prompt in "ab" for index in range(3)))
    assert len(verifier._finished) == 4


@pytest.mark.parametrize("indices", ["_ng_rollout_index", "_rowidx"])
def test_rows_of_a_batch_with_equal_prompts_are_different_groups(indices: str) -> None:
    """NeMo Gym gives equal rows one task, and NeMo RL numbers the rows of a batch."""
    requests = []
    for index in range(6):
        each = member(index % 3)
        del each["_ng_rollout_index"], each["_ng_task_index"]
        requests.append(each | {indices: index})
    fields = verified(of_groups(), *requests)
    assert [each["reward"] for each in fields] == pytest.approx([0.0, 0.5, 1.0] * 2)


def test_rollouts_without_numbers_form_groups_as_they_arrive() -> None:
    requests = [member(index) for index in (0, 1, 2, 2, 1, 0)]
    for each in requests:
        del each["_ng_rollout_index"]
    fields = verified(of_groups(), *requests)
    assert [each["reward"] for each in fields] == pytest.approx([0.0, 0.5, 1.0, 1.0, 0.5, 0.0])


def test_a_partial_group_is_rows_of_failures() -> None:
    verifier = of_groups()
    whole = [member(index, "whole") for index in range(3)]
    early, other, *scored = verified(verifier, member(0), member(1), *whole)
    assert early["_ng_failure_class"] == other["_ng_failure_class"] == "group_incomplete"
    assert "2 of 3 rollouts of the prompt arrived" in early[RETRIEVER_ERROR]
    assert (early["reward"], early["reward_components"]) == (0.0, {})
    assert early["instance_config"] == {"mask_sample": True}
    assert [each["reward"] for each in scored] == pytest.approx([0.0, 0.5, 1.0])
    assert (verifier.groups.active, verifier._requests) == ({}, {})


def test_the_advantage_of_lear_is_that_of_the_group() -> None:
    verifier = Verifier({"recipe": "search-r1"}, group_size=4, std_floor=0.1)
    answers = ["Seine", "Seine", "Loire", "Rhone"]
    fields = verified(
        verifier,
        *(
            request(text(f"<answer>{answer}</answer>"), _rowidx=index)
            for index, answer in enumerate(answers)
        ),
    )
    assert [each["reward"] for each in fields] == pytest.approx([1, 1, -1, -1])  # mean 0.5, std 0.5
    assert [each["search-r1/reward"] for each in fields] == [1, 1, 0, 0]
    assert [each["reward_components"] for each in fields] == [{}] * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options": {"recipe": "ctrl-rag", **LIKELIHOOD}}, "set group_size"),
        ({"options": {"recipe": "lear", **LIKELIHOOD}, "std_floor": 0.1}, "set group_size"),
    ],
)
def test_what_compares_rollouts_needs_a_group_size(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Verifier(**arguments)


# --- failures ------------------------------------------------------------------------------------


class FlakyJudge(TableJudge):
    """A judge that fails on the responses that contain the word `down`."""

    def __init__(self) -> None:
        super().__init__(self._value)

    def _value(self, question: Any) -> Any:
        is_down = "down" in question.response
        return BackendError("no reply") if is_down else int("Seine" in question.response)


def of_judge(judge: Any, **changes: Any) -> Verifier:
    options = {"recipe": "truthrl", "judge": "http://127.0.0.1:9/v1", "judge_model": "any"}
    verifier = Verifier(options, **changes)
    verifier.scorer.models = Models(judge=judge)
    return verifier


def judged(index: int, answer: str, **changes: Any) -> dict[str, Any]:
    return request(text(rf"\boxed{{{answer}}}"), _rowidx=index, **changes)


def test_the_failure_of_a_judge_is_a_class_and_no_reward() -> None:
    row = judged(0, "down", instance_config={"limit": 3})
    [failed, right] = verified(of_judge(FlakyJudge()), row, judged(1, "Seine"))
    assert failed["_ng_failure_class"] == "judge_failed"
    assert "row 7" in failed[RETRIEVER_ERROR]
    assert "no reply" in failed[RETRIEVER_ERROR]
    assert failed["instance_config"] == {"limit": 3, "mask_sample": True}
    assert right["reward"] == 1.0


def test_a_failed_judge_fails_the_group_in_one_class() -> None:
    """All members are then verified again, and none is compared with the others."""
    verifier = of_judge(FlakyJudge(), group_size=3)
    fields = verified(verifier, *(judged(i, a) for i, a in enumerate(("Seine", "down", "Rhone"))))
    assert [each["_ng_failure_class"] for each in fields] == ["judge_failed"] * 3
    assert [each["reward"] for each in fields] == [0.0] * 3


def test_the_failure_of_a_retriever_has_its_own_class() -> None:
    failed = json.dumps({RETRIEVER_ERROR: "TimeoutError: no reply"})
    given = request(SEARCH, results(failed), text("<answer>Seine</answer>"), _rowidx=1)
    fine = request(text("<answer>Seine</answer>"), _rowidx=0)
    verifier = Verifier({"recipe": "search-r1"}, group_size=2)
    [alone] = verified(Verifier({"recipe": "search-r1"}), given)
    assert [each["_ng_failure_class"] for each in (alone, *verified(verifier, fine, given))] == [
        "retriever_failed"
    ] * 3


@pytest.mark.parametrize(("scored", "allowed"), [(0, 15), (1, 19)])
def test_too_many_failures_are_an_error(scored: int, allowed: int) -> None:
    """A wrong address is an error after 16 rollouts, a later failure after `patience`."""
    verifier = of_judge(FlakyJudge(), patience=20)
    rows = [judged(0, "Seine")] * scored + [judged(0, "down")] * (allowed + 2)
    outcomes = [verified(verifier, row)[0] for row in rows]
    *fields, first, second = outcomes
    assert all(isinstance(each, dict) for each in fields)
    assert f"({allowed + 1} consecutive rollouts have failed)" in str(first)
    assert isinstance(second, BackendError)
    assert verified(verifier, judged(0, "Seine"))[0]["reward"] == 1.0
    assert isinstance(verified(verifier, judged(0, "down"))[0], dict)


def test_a_failed_group_is_one_failure() -> None:
    size = 17
    verifier = of_judge(FlakyJudge(), group_size=size, group_deadline=0.2)

    def failures(prompt: int, count: int) -> list[Any]:
        rows = (judged(i, f"down {i}", _ng_task_index=prompt) for i in range(count))
        return verified(verifier, *rows)

    fields = failures(0, size - 1)  # incomplete
    for prompt in range(1, 15):
        fields += failures(prompt, size)
    assert all(isinstance(each, dict) for each in fields)
    errors = failures(15, size)
    assert all("(16 consecutive groups have failed)" in str(error) for error in errors)


def test_an_invalid_row_completes_its_group() -> None:
    invalid = member(0) | {"verifier_metadata": {"id": "7", "documents": "none"}}
    error = verified(of_groups(), invalid)[0]
    assert error["_ng_failure_class"] == "group_incomplete"
    prompts = {"_ng_task_index": 0, "agent_ref": None}
    rows = [request(text("<answer>Seine</answer>"), _rowidx=i, **prompts) for i in (0, 1)]
    rows[1]["response"]["metadata"] = {EVIDENCE: "{"}
    scored, error = verified(Verifier({"recipe": "search-r1"}, group_size=2), *rows)
    assert scored["reward"] == 1.0
    assert isinstance(error, RowError)


# --- verification again --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 2])
def test_a_response_with_its_evidence_has_the_same_reward_without_models(size: int | None) -> None:
    rows = [judged(0, "the Seine river"), judged(1, "the Rhone river")]
    first = verified(of_judge(FlakyJudge(), keep_evidence=True, group_size=size), *rows)
    again = [
        {**row, "response": fields["response"]} for row, fields in zip(rows, first, strict=True)
    ]
    silent = TableJudge({})
    second = verified(of_judge(silent, group_size=size), *again)
    assert [each["reward"] for each in second] == [each["reward"] for each in first] == [1.0, -1.0]
    assert silent.requests == []


def test_damaged_evidence_is_an_error_of_the_row() -> None:
    row = judged(0, "Seine")
    for damaged in ("{", "[1]", '{"verdicts": 5}', "[" * 5000):
        row["response"]["metadata"] = {EVIDENCE: damaged}
        [error] = verified(of_judge(TableJudge({})), row)
        assert isinstance(error, (RowError, DataError)), error
