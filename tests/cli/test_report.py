"""`rag-rewards report`: messages, errors, and files of other programs."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pages import rollouts
from processes import WAIT_SECONDS


def test_rows_in_error_are_counted_and_listed(cli, write, arena, tmp_path):
    rows = write([arena(), arena(id="b", answers=None), '{"response": 1}', '{"response": NaN}'])
    page = tmp_path / "r.html"
    message = cli("report", rows, "-r", "arena", "-o", page, code=3).err
    assert "1 rollouts in" in message
    assert "line 3: response: expected" in message
    assert "b: answers: missing" in message
    assert "NaN" in message or "not a finite number" in message
    assert page.read_text().startswith("<!doctype html>")
    bad = '{"id": "n", "response": "x", "reward": NaN, "components": {}}'
    rows = write([arena(reward=1.0, components={"accuracy": 1.0}), bad])
    message = cli("report", rows, "-o", page, code=3).err
    assert "line 2: reward: not a finite number" in message


def test_invalid_arguments(cli, write, tmp_path):
    out = ("-o", tmp_path / "r.html")
    first, second = write(rollouts(1)), write(rollouts(2), "b.jsonl")
    for arguments, message in [
        (out, "no file of rows is given"),
        (("-", "-", *out), "given twice"),
        ((first, *out), "score them first, or set --recipe"),
        ((first, second, *out), "score them first"),
    ]:
        assert message in cli("report", *arguments, code=2).err
    assert not out[1].exists()


def test_rows_in_error_name_their_file(cli, write, tmp_path):
    bad = [*rollouts(4), {"id": "broken"}]
    paths = write(rollouts(4), "a.jsonl"), write(bad, "b.jsonl")
    message = cli("report", *paths, "-o", tmp_path / "r.html", "-r", "arena", code=3).err
    assert "b.jsonl: line 13: response: " in message


def test_parquet_files_are_compared(cli, tmp_path):
    scored = []
    for name, right in (("a", 4), ("b", 8)):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.Table.from_pylist(rollouts(right)), path)
        scored.append(tmp_path / f"scored-{name}.parquet")
        cli("score", path, "-o", scored[-1], "-r", "arena", code=0)
    message = cli("report", *scored, "-o", tmp_path / "r.html", code=0).err
    assert "24 rollouts in" in message


def test_the_page_can_be_written_to_standard_output(write, arena):
    rows = write([arena()])
    command = [sys.executable, "-m", "rag_rewards", "report", str(rows), "-r", "arena", "-o", "-"]
    done = subprocess.run(command, capture_output=True, timeout=WAIT_SECONDS, check=True)
    assert done.stdout.startswith(b"<!doctype html>")


def test_details_of_another_program(cli, write, arena, tmp_path):
    details = [
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
    ]
    components = {"citation": 1.0, "accuracy": 0.5, "relevance": 1.0, "length": 0.5}
    rows = [
        arena(id=str(i), reward=1.0, components=components, details=each)
        for i, each in enumerate(details)
    ]
    cli("report", write(rows), "-o", tmp_path / "report.html", code=0)
    for row in rows:
        cli("explain", write([row]), "--id", row["id"], "-r", "arena", code=0)


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
