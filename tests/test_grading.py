"""Plain options to a grader; rollouts and errors in, scores and errors out."""

from __future__ import annotations

import asyncio
import json

import pytest

import rag_rewards as rr
from rag_rewards.errors import GroupError, RowError, SettingError, UsageError
from rag_rewards.grading import Grader
from rag_rewards.models import Models
from rag_rewards.scoring import Plan
from rag_rewards.testing import TableJudge, TablePolicy

RELEVANT = "<relevance>[]</relevance>"


def arena(response: str, **row: object) -> rr.Rollout:
    return rr.decode_row({"response": response, "answers": "a", "supporting": [], **row})


def grouped(key: str, value: float) -> rr.Rollout:
    logprobs = {"full": [-1.0], "without": {"1": [-1.0 - value]}}
    row = {"response": "<answer>a</answer>", "answers": "a", "supporting": [1], "group": key}
    return rr.decode_row(json.dumps({**row, "documents": [{"text": "a"}], "logprobs": logprobs}))


def test_options_in_one_mapping() -> None:
    options = {"recipe": "arena", "settings": {"accuracy": {"metric": "f1"}}, "hardened": True}
    signature = Grader.of(options).signature
    assert '"accuracy.metric":"f1"' in signature
    assert '"accuracy.normalizer":"unicode"' in signature


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"recpie": "arena"}, "unknown option 'recpie'; did you mean 'recipe'"),
        ({}, "which recipe"),
        ({"recipe": "arena", "stages": [{"recipe": "arena"}]}, "not both"),
        ({"recipe": "arena", "hardened": "very"}, "hardened"),
        ({"recipe": "arena", "settings": {"bonus.valu": 1}}, "did you mean 'bonus.value'"),
        ({"recipe": "truthrl", "judge": "http://localhost/v1"}, "judge-model"),
    ],
)
def test_unusable_options_say_why(options: dict[str, object], says: str) -> None:
    with pytest.raises((UsageError, SettingError), match=says):
        Grader.of(options)


def test_errors_stay_in_their_place() -> None:
    broken = RowError("missing", "response")
    results = Grader(Plan(recipe="arena")).score_each([arena(RELEVANT), broken, arena("<x>")])
    assert results[1] is broken
    assert [getattr(r, "value", None) for r in results] == [1.0, None, 0.0]


def test_an_error_takes_its_group_with_it_and_no_other() -> None:
    grader = Grader(Plan(recipe="ctrl-rag"))
    rows = [grouped("p", 3), grouped("p", 9), grouped("q", 3), RowError("missing", "response")]
    results = grader.score_each(rows, [[0, 1], [2, 3]])
    assert [getattr(r, "value", None) for r in results] == [0.0, pytest.approx(1.0), None, None]
    assert isinstance(results[2], GroupError)
    assert "response: missing" in str(results[2])


def test_groups_by_key_where_none_are_given() -> None:
    rows = [grouped("p", 3), grouped("q", 5), grouped("p", 9), RowError("missing", "response")]
    results = Grader(Plan(recipe="ctrl-rag")).score_each(rows)
    assert [getattr(r, "value", None) for r in results][:3:2] == [0.0, pytest.approx(1.0)]
    assert isinstance(results[3], RowError)


def test_models_are_asked_sync_and_async_alike() -> None:
    grader = Grader(Plan(recipe="truthrl"), Models(judge=TableJudge(lambda asked: 1)))
    row = rr.decode_row({"question": "q", "response": r"\boxed{x}", "answers": "y"})
    sync = grader.score_each([row])
    assert asyncio.run(grader.score_each_async([row])) == sync
    assert sync[0].value == 1.0  # type: ignore[union-attr]
    assert "judge" in grader.signature


def test_documents_stand_in_another_form_and_the_rest_of_the_prompt_is_the_recipes() -> None:
    plan, policy = Plan(recipe="lear"), Models(policy=TablePolicy())
    own = Grader(plan, policy)
    other = Grader(plan, policy, document_form="{text} ({label})", document_separator=" ")
    assert other.prompt.message == own.prompt.message
    documents = [rr.Document(text="a"), rr.Document(title="T", text="b")]
    row = rr.Rollout(response="", documents=documents)
    [message] = other.prompt.messages(row)
    assert "Passages:\n\na (1) b (2)\n\nQuestion:" in message["content"]
    assert own.signature != other.signature
    assert own.signature == Grader(plan, policy, document_form=None).signature


@pytest.mark.parametrize("form", ["", "[{label}]", "{text} {body}"])
def test_a_form_that_shows_no_document_says_so_before_a_model_is_loaded(form: str) -> None:
    with pytest.raises(UsageError, match=r"a document's form has \{text\}.*found"):
        Grader.of({"recipe": "ctrl-rag", "model": "no/such", "document_form": form})
    with pytest.raises(UsageError, match="give --model"):
        Grader.of({"recipe": "ctrl-rag", "document_separator": " "})


def test_a_recipe_of_ones_own() -> None:
    def brief(rollout: rr.Rollout) -> float:
        return float(len(rollout.parsed.text) < 3)

    assert Grader(rr.custom("brief", brief)).score_each([arena("ok")])[0].value == 1.0  # type: ignore[union-attr]
