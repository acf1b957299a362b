"""`rag-rewards explain`: terminal output, JSON and page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))

import tiny_models


@pytest.fixture
def scored(cli, write, arena, tmp_path):
    wrong = "<relevance>[2]</relevance><analysis>One.</analysis><answer>Rhine</answer>"
    documents = [{"text": "Paris lies on the Seine."}, {"text": "The Rhine is long."}]
    rows = [
        arena(group="g", documents=documents),
        arena(id="b", group="g", documents=documents, response=wrong),
    ]
    out = tmp_path / "scored.jsonl"
    cli("score", write(rows), "-r", "arena", "--set", "bonus.value=5", "-o", out, code=0)
    return out


def explanation(cli, *arguments):
    return json.loads(cli("explain", *arguments, "--json", code=0).out)


def test_a_row_in_the_terminal(cli, scored):
    output = cli("explain", scored, "--id", "b", code=0).out
    assert "“Rhine” is wrong; lists 2 (supporting: 1)" in output
    assert "advantage -1.00 in its group" in output
    assert "answer “Seine”" in output
    assert "name exactly [1]" in output


def test_variants_are_scored_with_the_settings_of_the_row(cli, scored):
    values = explanation(cli, scored, "--id", "b")
    assert values["reward"] == 1.0
    assert {each["what"]: each["reward"] for each in values["changes"]} == {
        "with the answer “Seine”": 2.0,
        "naming [1]": 2.0,
        "naming [1], with the answer “Seine”": 8.0,
    }
    assert values["signature"].endswith(' arena {"settings":{"bonus.value":5}}')
    values = explanation(cli, scored, "--id", "b", "-r", "arena", "--hardened")
    assert values["signature"].endswith(" arena hardened")


def test_a_model_provides_tokens_and_every_document(cli, write, tmp_path):
    folder = tiny_models.save(tmp_path / "model")
    rows = [
        {
            "id": "x",
            "question": "Which river?",
            "documents": [{"text": "The Seine."}, {"text": "The Rhine."}, {"text": "The Elbe."}],
            "supporting": [1],
            "answers": ["Seine"],
            "response": "It is the Seine [1].",
        }
    ]
    values = explanation(cli, write(rows), "--id", "x", "-r", "ctrl-rag", "--model", folder)
    assert all("effect" in each for each in values["passages"])
    assert values["tokens"] == "tokens of the tokenizer"
    assert "".join(each["t"] for each in values["segments"]) == rows[0]["response"]


def test_ids(cli, scored, write, arena):
    for row, message in (
        ("bb", "no row has the id bb; did you mean b?"),
        ("zzz", "no row has the id zzz; the first id is a"),
    ):
        assert message in cli("explain", scored, "--id", row, code=2).err
    rows = write([arena(id=None), arena(id=None)])  # the id is the number of the line
    assert explanation(cli, rows, "--id", "2", "-r", "arena")["id"] == "2"


def test_rows_that_cannot_be_explained(cli, write, arena, tmp_path):
    assert "set --recipe" in cli("explain", write([arena()]), "--id", "a", code=2).err
    torn = write([arena(), arena(id="b", answers=None)])
    message = cli("explain", torn, "--id", "b", "-r", "arena", code=2).err
    assert "row b cannot be scored: answers: missing" in message
    broken = write([arena(), '{"id": "c", "response": 3}'])
    assert "row 2: response" in cli("explain", broken, "--id", "2", "-r", "arena", code=2).err
    assert "no row" in cli("explain", write([]), "--id", "a", "-r", "arena", code=2).err
    twice = write([arena(), arena()])
    assert "2 rows have the id a" in cli("explain", twice, "--id", "a", "-r", "arena", code=2).err


def test_control_characters_are_not_printed(cli, write, arena):
    rows = write([arena(response="\u001b[31mred \u202eback"), arena(id="b")])
    output = cli("explain", rows, "--id", "a", "-r", "arena", code=0).out
    assert "\u001b" not in output
    assert "\u202e" not in output
    assert "␛" in output


def test_a_page(cli, scored, tmp_path):
    page = tmp_path / "row.html"
    assert cli("explain", scored, "--id", "b", "-o", page, code=0).out == ""
    assert "Rhine" in page.read_text()
    assert [path.name for path in tmp_path.glob("row*")] == ["row.html"]
