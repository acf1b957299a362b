"""Rollouts from the labels, columns and additional fields of trainers."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from rag_rewards.errors import DataError, RowError, UsageError
from rag_rewards.models.model_options import missing_model
from rag_rewards.rollout import Rollout
from rag_rewards.rows import columns
from rag_rewards.rows.column_map import ColumnMap
from rag_rewards.rows.columns import (
    DATASET_FIELDS,
    label_fields,
    last_question,
    response_prefix_of,
    rollout_from_columns,
    to_builtins,
)


def test_the_examples_run() -> None:
    ran = doctest.testmod(columns)
    assert ran.attempted > 0
    assert ran.failed == 0


def test_arrays_of_any_depth_become_lists() -> None:
    nested = np.array([np.array(["a", "b"], dtype=object), np.array(["c"], dtype=object)], object)
    read = to_builtins(
        {"answers": nested, "n": np.int64(3), "flag": np.bool_(True), "x": (1, None)}
    )
    assert read == {"answers": [["a", "b"], ["c"]], "n": 3, "flag": True, "x": [1, None]}
    assert type(read["n"]) is int
    assert type(read["flag"]) is bool


@pytest.mark.parametrize(
    ("label", "fields"),
    [
        ("Seine", {"answers": "Seine"}),
        ("{1, 2}", {"answers": "{1, 2}"}),
        ('["Seine", "the Seine"]', {"answers": ["Seine", "the Seine"]}),
        ("[1, 2]", {"answers": "[1, 2]"}),
        (["a", "b"], {"answers": ["a", "b"]}),
        (1969, {"answers": 1969}),
        ({"answers": ["a"], "supporting": [1]}, {"answers": ["a"], "supporting": [1]}),
        (' {"answerable": false}', {"answerable": False}),
        (None, {}),
    ],
)
def test_labels(label: object, fields: dict[str, object]) -> None:
    assert label_fields(label) == fields


def test_a_label_without_known_fields_is_an_error() -> None:
    with pytest.raises(DataError, match=r"answers.*found .'target'.*prepare"):
        label_fields({"target": "Seine"})


@pytest.mark.parametrize("label", ["{'answers': ['Seine']}", '{"answers": ["Seine"', '{"answers":'])
def test_a_torn_row_is_an_error_and_not_an_answer(label: str) -> None:
    with pytest.raises(DataError, match="not JSON"):
        label_fields(label)


def test_missing_values_of_a_table_are_not_answers() -> None:
    assert to_builtins([float("nan"), np.nan, 1.0]) == [None, None, 1.0]
    rollout = rollout_from_columns({"answers": float("nan")}, response="nan")
    assert isinstance(rollout, Rollout)
    assert rollout.answers is None
    assert isinstance(rollout_from_columns({"answers": ["a", float("nan")]}, response=""), RowError)


def test_deeply_nested_labels() -> None:
    deep: list[object] = []
    for _ in range(3000):
        deep = [deep]
    with pytest.raises(DataError, match="deeply"):
        label_fields({"answers": deep})
    assert isinstance(rollout_from_columns({"answers": deep}, response=""), RowError)


def test_fields_of_the_trainer_are_not_read_from_columns() -> None:
    row = {"answers": "a", "response": "from the data", "step": 9, "logprobs": {"full": []}}
    rollout = rollout_from_columns(row, response="said", step=2)
    assert isinstance(rollout, Rollout)
    assert (rollout.response, rollout.step, rollout.logprobs) == ("said", 2, None)


def test_columnar_files_fill_documents_with_none() -> None:
    documents = np.array([{"id": None, "title": None, "text": "x", "supports": None}], object)
    rollout = rollout_from_columns({"documents": documents}, response="")
    assert isinstance(rollout, Rollout)
    assert rollout.documents is not None
    assert rollout.labels == ("1",)


def test_a_row_in_error_has_its_id() -> None:
    error = rollout_from_columns({"id": 7, "documents": [{"text": 3}]}, response="")
    assert isinstance(error, RowError)
    assert str(error) == "row 7: documents[0].text: expected str, found int"


@pytest.mark.parametrize(
    ("prompt", "prefix"),
    [
        ("assistant\n<think>\n", "<think>\n"),
        ("…<answer>", "<answer>"),
        ("<think></think>", None),
        ("put it inside <answer> and </answer>.", None),
        ("", None),
        ("<s>", None),
    ],
)
def test_response_prefixes_of_prompts(prompt: str, prefix: str | None) -> None:
    assert response_prefix_of(prompt) == prefix


class TestColumns:
    def test_an_unknown_field_suggests_the_nearest(self) -> None:
        with pytest.raises(UsageError, match=r"columns: a row has no field 'answer'.*answers"):
            ColumnMap.of({"answer": "x"}, DATASET_FIELDS)
        with pytest.raises(UsageError, match="columns: a row has no field 'step'"):
            ColumnMap.of({"step": "x"}, DATASET_FIELDS)  # only the trainer sets it

    def test_columns_have_the_name_of_the_field_or_a_mapped_name(self) -> None:
        columns = ColumnMap.of({"answers": "gold|target"})
        assert columns.columns_in(["gold", "documents", "seed"]) == {
            "answers": "gold",
            "documents": "documents",
        }
        assert columns.columns_in(["answers", "target"]) == {"answers": "target"}
        with pytest.raises(UsageError, match=r"no column 'gold'.*golds"):
            columns.columns_in(["golds"])

    def test_the_last_question_of_a_chat(self) -> None:
        chat = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "x"}]
        assert last_question(chat) == "b"
        assert last_question([{"role": "user", "content": [{"type": "image"}]}]) is None
        assert last_question([]) is None
        assert last_question("a") is None

    def test_a_missing_model(self) -> None:
        assert str(missing_model("mine", "judge", "bind, or set")) == (
            "mine requires a model of the kind judge: bind, or set "
            'judge="http://host:8000/v1", judge_model="NAME"'
        )
