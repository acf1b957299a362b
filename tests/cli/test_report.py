"""`rag-rewards report`: pages and messages."""

from __future__ import annotations

import subprocess
import sys

import pytest
from processes import WAIT_SECONDS


def test_rows_are_scored_with_a_recipe(cli, write, arena, tmp_path):
    page = tmp_path / "report.html"
    rows = write([arena(), arena(id="b", response="x")])
    message = cli("report", rows, "-r", "arena", "-o", page, code=0).err
    assert "2 rollouts in" in message
    assert page.read_text().startswith("<!doctype html>")


def test_rows_in_error_are_counted_and_listed(cli, write, arena, tmp_path):
    rows = write([arena(), arena(id="b", answers=None), '{"response": 1}', '{"response": NaN}'])
    message = cli("report", rows, "-r", "arena", "-o", tmp_path / "r.html", code=3).err
    assert "line 3: response: expected" in message
    assert "b: answers: missing" in message
    assert "NaN" in message or "not a finite number" in message


def test_a_reward_that_is_not_a_number_is_named(cli, write, arena, tmp_path):
    bad = '{"id": "n", "response": "x", "reward": NaN, "components": {}}'
    rows = write([arena(reward=1.0, components={"accuracy": 1.0}), bad])
    message = cli("report", rows, "-o", tmp_path / "r.html", code=3).err
    assert "line 2: reward: not a finite number" in message


def test_rows_without_a_reward(cli, write, arena, tmp_path):
    message = cli("report", write([arena()]), "-o", tmp_path / "r.html", code=2).err
    assert "score them first, or set --recipe" in message
    assert not (tmp_path / "r.html").exists()


def test_an_empty_file(cli, write, tmp_path):
    page = tmp_path / "r.html"
    message = cli("report", write([]), "-o", page, code=0).err
    assert "the file has no row that can be shown" in message
    assert "the file has no row that can be shown" in page.read_text()


@pytest.mark.parametrize("count", [1, 3])
def test_rewards_without_spread_have_a_note(cli, write, arena, tmp_path, count):
    rows = write([arena(id=str(i)) for i in range(count)])
    message = cli("report", rows, "-r", "arena", "-o", tmp_path / "r.html", code=0).err
    assert ("every group has one rollout" if count == 1 else "every reward is 13") in message


def test_the_page_can_be_written_to_standard_output(write, arena):
    rows = write([arena()])
    command = [sys.executable, "-m", "rag_rewards", "report", str(rows), "-r", "arena", "-o", "-"]
    done = subprocess.run(command, capture_output=True, timeout=WAIT_SECONDS, check=True)
    assert done.stdout.startswith(b"<!doctype html>")


@pytest.mark.parametrize(
    "details",
    [
        {"statements": 5},
        {"statements": [5]},
        {"statements": [{"text": 3}]},
        {"statements": "text"},
        {"answer": 5},
        {"answer": [1]},
        {"relevance": 5},
        {"cited": 5},
        {"decided_by": "x"},
        {"critical_document": "1"},
        {"tokens": {"reason": 1}},
        {"searches": 2, "turns": [5]},
    ],
    ids=str,
)
def test_details_of_another_program(cli, write, arena, tmp_path, details):
    row = arena(reward=1.0, components={"citation": 1.0, "accuracy": 0.5}, details=details)
    cli("report", write([row]), "-o", tmp_path / "report.html", code=0)
    assert "</html>" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("count", [4, 60])
def test_rewards_at_the_end_of_the_range(cli, write, tmp_path, count):
    def rows(first, second):
        return [
            {"id": i, "group": str(i // 2), "response": "x", "step": i, "correct": i % 2}
            | {"reward": (first, second)[i % 2] * (1 - i / 1000), "components": {"a": second}}
            for i in range(count)
        ]

    out = tmp_path / "out.html"
    source = write(rows(1.7e308, -1.7e308))
    for sources in ([source], [source, write(rows(1.0, 0.0), "b.jsonl")]):
        message = cli("report", *sources, "-o", out, code=2).err
        assert "too large for a number: leave out the rows" in message
    source = write(rows(1.7e307, -1.7e307)[:4])
    cli("report", source, "-o", out, code=0)
    assert "NaN" not in out.read_text()
