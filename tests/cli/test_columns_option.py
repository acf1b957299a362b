"""`--columns` on every command that reads rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rag_rewards as rr

RIGHT = "<think>x</think><answer>Seine</answer>"
WRONG = "<think>x</think><answer>Rhône</answer>"
ROWS = [
    {"user_input": "Which river?", "retrieved_contexts": ["Paris lies on the Seine."],
     "response": response, "reference": "Seine", "human": human}
    for response, human in ((RIGHT, 1), (WRONG, 0), (RIGHT, 1))
]  # fmt: skip
RECIPE = ("-r", "naive-grpo")
COLUMNS = ("--columns", "ragas")


@pytest.fixture
def ragas(tmp_path: Path) -> Path:
    path = tmp_path / "ragas.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_score(cli: Any, ragas: Path) -> None:
    result = cli("score", ragas, "--jsonl", *RECIPE, *COLUMNS, code=0)
    assert [row["reward"] for row in result.rows] == [2.0, 1.0, 2.0]
    assert result.rows[0]["question"] == "Which river?"
    assert result.rows[0]["human"] == 1


def test_the_scored_rows_need_no_columns(cli: Any, ragas: Path, tmp_path: Path) -> None:
    out = tmp_path / "scored.jsonl"
    cli("score", ragas, "-o", out, *RECIPE, *COLUMNS, code=0)
    again = cli("score", out, "--jsonl", *RECIPE, code=0)
    assert [row["reward"] for row in again.rows] == [2.0, 1.0, 2.0]


def test_workers_and_parquet(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    table = [{"step": 1, "prompt": "Which?", "completion": RIGHT, "solution": "Seine"}] * 3
    pq.write_table(pa.Table.from_pylist(table), path)
    result = cli("score", path, "--jsonl", *RECIPE, "--columns", "trl", "--workers", 2, code=0)
    assert [row["reward"] for row in result.rows] == [2.0] * 3


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "-m", "em"),
        ("calibrate", "--label", "human", "--metrics", "em", "--resamples", 10),
        ("explain", "--id", 2, *RECIPE),
        ("report", "-o", "{out}", *RECIPE),
        ("replay", *RECIPE, "--set", "accuracy.metric=f1"),
        ("select", "-o", "{out}", "--right-at", 1, *RECIPE),
        ("probe", "-o", "{out}", *RECIPE),
        ("audit", *RECIPE),
    ],
    ids=lambda command: command[0],
)
def test_other_commands(cli: Any, ragas: Path, tmp_path: Path, command: tuple[object, ...]) -> None:
    name, *options = (str(o).format(out=tmp_path / "out") for o in command)
    without = cli(name, ragas, *options)
    result = cli(name, ragas, *options, *COLUMNS)
    assert without.code != result.code or without.out != result.out or without.err != result.err
    assert "missing" not in result.out + result.err


def test_a_missing_field_names_the_nearest_column(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"completion": "a"}\n{"response": "b", "ground_truth": "c"}\n')
    result = cli("score", path, "--jsonl", *RECIPE, code=3)
    assert "response: missing (also missing: answers); did" in result.err
    assert "did you mean completion? Pass --columns response=completion\n" in result.err
    assert "did you mean ground_truth? Pass --columns answers=ground_truth\n" in result.err
    assert "errors: DataError 1, RowError 1" in result.err


def test_one_option_for_all_columns(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {
        "completion": "<think>x</think><answer>Seine</answer>",
        "query": "Which river?",
        "contexts": ["Paris lies on the Seine."],
        "golden_answers": ["Seine"],
        "gold_ids": [1],
    }
    path.write_text(json.dumps(row) + "\n")
    option = (
        "response=completion,documents=contexts,answers=golden_answers,question=query,"
        "supporting=gold_ids"
    )
    result = cli("score", path, "--jsonl", *RECIPE, code=3)
    assert f"Pass --columns {option}\n" in result.err
    cli("score", path, "--jsonl", *RECIPE, "--columns", option, code=0)
    with pytest.raises(rr.UsageError, match=f"Set the option columns to {option} "):
        rr.score([row], "arena")
    [scored] = rr.score([row | {"response": "x"}], "arena")
    assert scored["error"].endswith(option.partition(",")[2])
    out = tmp_path / "out.jsonl"
    result = cli("prepare", "rows", path, "-o", out, "-r", "arena", code=2)
    prepared = "documents=contexts,answers=golden_answers,question=query,supporting=gold_ids"
    assert f"Pass --columns {prepared})" in result.err
    cli("prepare", "rows", path, "-o", out, "-r", "arena", "--columns", prepared, code=0)


def test_columns_of_another_form_are_no_suggestion(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"completion": "a", "contexts": "[1] a text", "golden_answers": {"n": 1}, "gold_ids": 7}\n'
    )
    result = cli("score", path, "--jsonl", *RECIPE, code=3)
    assert "did you mean completion? Pass --columns response=completion\n" in result.err


def test_a_column_that_is_mapped_is_no_suggestion(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"response": "b", "reference": null, "gold": null}\n')
    for columns in ("ragas", "answers=gold"):
        result = cli("score", path, "--jsonl", *RECIPE, "--columns", columns, code=3)
        assert "answers: missing\n" in result.err


def test_an_unknown_preset(cli: Any, ragas: Path) -> None:
    result = cli("score", ragas, *RECIPE, "--columns", "raga", code=2)
    assert "did you mean 'ragas'" in result.err


def test_prepare_rows(cli: Any, ragas: Path, tmp_path: Path) -> None:
    out = tmp_path / "train.jsonl"
    cli("prepare", "rows", ragas, "-o", out, *RECIPE, *COLUMNS, code=0)
    row = json.loads(out.read_text().splitlines()[0])
    assert (row["question"], row["answers"]) == ("Which river?", [["Seine"]])
    assert [document["text"] for document in row["documents"]] == ["Paris lies on the Seine."]


def test_prepare_of_another_data_set(cli: Any, ragas: Path, tmp_path: Path) -> None:
    options = ("-o", tmp_path / "train.jsonl", *RECIPE, *COLUMNS)
    result = cli("prepare", "hotpotqa", ragas, *options, code=2)
    assert "--columns is for the data set rows: leave it out for hotpotqa" in result.err


def test_replay_names_rows_by_their_line(cli: Any, ragas: Path) -> None:
    options = ("-r", "search-r1", "--set", "scheme=format")
    result = cli("replay", ragas, *options, *COLUMNS, code=0)
    assert "\n  2 " in result.out  # the row with the wrong answer


def test_an_unknown_component_is_an_error_with_the_components(
    cli: Any, ragas: Path, tmp_path: Path
) -> None:
    out = tmp_path / "scored.jsonl"
    cli("score", ragas, "-o", out, *RECIPE, *COLUMNS, code=0)
    result = cli("evaluate", out, "-m", "components.recall")
    output = " ".join((result.out + result.err).split())
    assert "components.recall: missing: the row has the components format, accuracy" in output
