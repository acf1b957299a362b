"""Files of ragas, verl and TRL become scored rows with one command, also as Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

RIGHT, WRONG = "<think>x</think><answer>Seine</answer>", "<think>x</think><answer>Rhine</answer>"
QUESTION = "Which river runs through Paris?"
CONTEXTS = ["Paris lies on the Seine."]
GOLD = json.dumps({"question": QUESTION, "answers": ["Seine"], "supporting": [1]})
CHAT = [{"content": QUESTION, "role": "user"}]


def both(**fields: Any) -> list[dict[str, Any]]:
    """Return a row for each response, which is in the field with the value None."""
    [name] = [name for name, value in fields.items() if value is None]
    return [{**fields, name: response} for response in (RIGHT, WRONG)]


FILES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    # Samples of one turn of ragas from version 0.2 on, and the two earlier schemas.
    "ragas 0.2": (
        "ragas",
        both(user_input=QUESTION, retrieved_contexts=CONTEXTS, response=None, reference="Seine"),
    ),
    "ragas 0.1": (
        "ragas",
        both(question=QUESTION, contexts=CONTEXTS, answer=None, ground_truth="Seine"),
    ),
    "ragas 0.0": (
        "ragas",
        both(question=QUESTION, contexts=CONTEXTS, answer=None, ground_truths=["Seine"]),
    ),
    # Rollouts of verl, whose label is that of `prepare`, a text, or that of Search-R1.
    "verl": ("verl", both(input=f"user\n{QUESTION}", output=None, gts=GOLD, score=1.0, step=3)),
    "verl with a text": ("verl", both(input=QUESTION, output=None, gts="Seine", score=0.0)),
    "verl with Search-R1": (
        "verl",
        both(input=QUESTION, output=None, gts={"target": ["Seine"]}, score=0.0),
    ),
    "trl": (
        "trl",
        [
            {"step": 1, "prompt": CHAT, "arena": 1.0, "arena/gold": GOLD, "advantage": 0.5}
            | {"completion": [{"role": "assistant", "content": response}]}
            for response in (RIGHT, WRONG)
        ],
    ),
    "trl with texts": (
        "trl",
        both(step=1, prompt=QUESTION, completion=None, solution="Seine", advantage=0.0),
    ),
    "openrlhf": ("openrlhf", both(input=QUESTION, response=None, label="Seine")),
    "verifiers": (
        "verifiers",
        [
            {"example_id": 1, "prompt": CHAT, "answer": "Seine", "reward": 1.0}
            | {"completion": [{"role": "assistant", "content": response}]}
            for response in (RIGHT, WRONG)
        ],
    ),
    "search-r1": (
        "search-r1",
        both(question=QUESTION, golden_answers=["Seine"], sequences_str=None),
    ),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_one_command_scores_the_file(cli: Any, tmp_path: Path, name: str, kind: str) -> None:
    preset, rows = FILES[name]
    path, out = tmp_path / f"rows.{kind}", tmp_path / f"scored.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cli("score", path, "--columns", preset, "-r", "naive-grpo", "-o", out, code=0)
    if kind == "parquet":
        scored = pq.read_table(out).to_pylist()
    else:
        scored = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["correct"] for row in scored] == [1.0, 0.0]
    assert [row["reward"] for row in scored] == [2.0, 1.0]
    shown = cli("evaluate", path, "--columns", preset, "-m", "em,pass@2", "-o", "-", code=0).out
    em, passed = json.loads(shown)["runs"][0]["metrics"]
    assert em["values"]["em"]["value"] == 0.5
    assert passed["units"] == 1  # both responses are of one prompt
    options = ("--columns", preset, "-r", "naive-grpo")
    cli("report", path, *options, "-o", tmp_path / "report.html", code=0)
    first = "1" if preset != "verifiers" else None
    if first:
        cli("explain", path, *options, "--id", first, code=0)


def test_a_conversation_of_ragas(cli: Any, tmp_path: Path) -> None:
    turns = [
        {"content": "Hello.", "type": "human"},
        {"content": "Hello!", "type": "ai"},
        {"content": QUESTION, "type": "human"},
        {"content": RIGHT, "type": "ai"},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"user_input": turns, "reference": "Seine"}))
    [row] = cli("score", path, "--columns", "ragas", "-r", "naive-grpo", "--jsonl", code=0).rows
    assert (row["question"], row["correct"]) == (QUESTION, 1.0)


def test_a_log_without_gold_data(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "completions.parquet"
    pq.write_table(pa.Table.from_pylist([{"step": 1, "prompt": "x", "completion": "y"}]), path)
    error = cli("score", path, "--columns", "trl", "-r", "naive-grpo", "--jsonl", code=3).err
    assert "answers: missing" in error


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows.csv", "response\nParis\n", "convert it, for example with to_json"),
        ("rows.json", '[{"response": "a"}, {"response": "b"}]', "is a JSON array"),
        ("rows.json", '\ufeff[\n  {\n    "response": "a"\n  }\n]\n', "is a JSON array"),
    ],
)
def test_a_file_without_rows_names_the_conversion(
    cli: Any, tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    result = cli("score", path, "--jsonl", "-r", "naive-grpo", code=2)
    assert message in result.err
    assert not result.out
