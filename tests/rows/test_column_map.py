"""Columns of other schemas as fields of a row."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

import rag_rewards as rr
from rag_rewards.rows.column_map import PRESETS, ColumnMap

ANSWER = "<think>x</think><answer>Seine</answer>"

# A row of each schema, and the fields that it has.
SCHEMAS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ragas": (
        {
            "user_input": "Which river?",
            "retrieved_contexts": ["Paris lies on the Seine."],
            "response": ANSWER,
            "reference": "Seine",
        },
        {"question": "Which river?", "documents": ["Paris lies on the Seine."]},
    ),
    "trl": (
        {"step": 3, "prompt": "Which river?", "completion": ANSWER, "answer": "Seine", "fmt": 1.0},
        {"step": 3, "prompt": "Which river?"},
    ),
    "verl": (
        {"input": "Which river?\n<think>\n", "output": "x</think><answer>Seine</answer>",
         "gts": '{"answers": ["Seine"], "supporting": [1]}', "score": 0.5, "step": 7},
        {"response_prefix": "<think>\n", "supporting": [1], "step": 7},
    ),
    "openrlhf": (
        {"input": "Which river?", "label": '["Seine", "the Seine"]', "output": ANSWER},
        {"prompt": "Which river?"},
    ),
    "verifiers": (
        {"example_id": 4, "prompt": [{"role": "user", "content": "Which river?"}],
         "completion": [{"role": "assistant", "content": ANSWER}], "answer": "Seine",
         "reward": 0.0},
        {"id": 4, "question": "Which river?"},
    ),
    "search-r1": (
        {"question": "Which river?", "response": ANSWER,
         "reward_model": {"style": "rule", "ground_truth": {"target": ["Seine"]}}},
        {"question": "Which river?"},
    ),
}  # fmt: skip


def test_every_preset_has_a_row() -> None:
    assert SCHEMAS.keys() == PRESETS.keys()


@pytest.mark.parametrize("name", SCHEMAS)
def test_presets(name: str) -> None:
    row, expected = SCHEMAS[name]
    before = json.dumps(row)
    renamed = ColumnMap.of(name).rename(row)
    assert json.dumps(row) == before
    assert renamed.items() >= expected.items()
    assert rr.recipe("naive-grpo")([rr.decode_row(renamed)])[0].value == 2.0


@pytest.mark.parametrize("name", SCHEMAS)
def test_presets_of_tables(name: str) -> None:
    [scored] = rr.score([SCHEMAS[name][0]], "naive-grpo", columns=name, prefix="new_")
    assert scored["new_reward"] == 2.0
    frame = pl.DataFrame([SCHEMAS[name][0]])
    assert rr.score(frame, "naive-grpo", columns=name, prefix="new_")["new_reward"][0] == 2.0


def test_the_older_names_of_ragas() -> None:
    row = {"question": "Which?", "contexts": ["a"], "answer": ANSWER, "ground_truths": ["Seine"]}
    renamed = ColumnMap.of("ragas").rename(row)
    assert renamed == {
        "question": "Which?", "documents": ["a"], "response": ANSWER, "answers": ["Seine"]
    }  # fmt: skip


def test_other_columns_stay() -> None:
    columns = ColumnMap.of("response=completion, answers=gold.first")
    row = {"completion": "a", "gold": {"first": "b"}, "seed": 7}
    assert columns.rename(row) == {
        "gold": {"first": "b"}, "seed": 7, "response": "a", "answers": "b"
    }  # fmt: skip


def test_a_name_with_a_dot() -> None:
    columns = ColumnMap.of({"response": "run.text"})
    assert columns.rename({"run.text": "a", "run": {"text": "b"}})["response"] == "a"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("raga", "no preset 'raga'; did you mean 'ragas'"),
        ("respons=completion", "no field 'respons'; did you mean 'response'"),
        ("response=", "write field=column"),
        ("response=completion,", "write field=column"),
        ("", "no preset ''"),
    ],
)
def test_invalid_maps(columns: str, message: str) -> None:
    with pytest.raises(rr.UsageError, match=message):
        ColumnMap.of(columns)


@pytest.mark.parametrize("line", [b"{", b"[1]", b'{"a": NaN}', b"\xff"])
def test_a_line_that_is_no_object_stays(line: bytes) -> None:
    assert list(ColumnMap.of("ragas").lines(iter([(3, line)]))) == [(3, line)]
