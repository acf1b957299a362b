"""`prepare --resume` with no, partial and complete output."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "hotpot.json"
    row = {
        "answer": "Seine",
        "type": "bridge",
        "level": "easy",
        "supporting_facts": [["Paris", 0]],
        "context": [["Paris", ["Paris lies on the Seine."]], ["Rome", ["The Tiber."]]],
    }
    rows = [row | {"_id": str(i), "question": f"Which river is number {i}?"} for i in range(9)]
    path.write_text(json.dumps([*rows, rows[0]]))  # the last row is a duplicate
    return path


def test_prepare_resumes(cli, questions, tmp_path):
    out = tmp_path / "out.jsonl"
    command = ("prepare", "hotpotqa", questions, "-r", "arena", "-o", out)
    whole = cli(*command, code=0)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "out.jsonl.card.md").rename(tmp_path / "card")
    out.unlink()
    (tmp_path / "out.jsonl.partial").write_bytes(b"the start of a row")
    assert cli(*command, "--resume", code=0) == whole  # partial output: starts again
    (tmp_path / "card").unlink()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    changed = out.stat().st_mtime_ns
    assert cli(*command, "--resume", code=0) == whole  # complete output: does nothing
    assert out.stat().st_mtime_ns == changed
    message = cli(*command, "--resume", "--seed", "3", "--order", "shuffled", code=2).err
    assert f"cannot resume {out}: {out}.card.md has other settings or another input" in message
    questions.write_text(questions.read_text() + "\n")
    message = cli(*command, "--resume", code=2).err
    assert "has other settings or another input" in message
    assert message.endswith(": start again without --resume\n")
    cli(*command, code=0)


def test_an_output_that_was_changed_is_written_again(cli, questions, tmp_path):
    out = tmp_path / "out.jsonl"
    command = ("prepare", "hotpotqa", questions, "-r", "arena", "-o", out)
    cli(*command, code=0)
    content = out.read_bytes()
    out.write_bytes(content[:-20])
    cli(*command, "--resume", code=0)
    assert out.read_bytes() == content


@pytest.mark.parametrize("head", ["a text", "signature: 1\noutput: 2", "- 1"])
def test_a_card_that_another_program_wrote(cli, questions, tmp_path, head):
    (tmp_path / "out.jsonl").write_text("")
    (tmp_path / "out.jsonl.card.md").write_text(f"---\n{head}\n---\n\na text\n")
    command = ("prepare", "hotpotqa", questions, "-r", "arena", "-o", tmp_path / "out.jsonl")
    message = cli(*command, "--resume", code=2).err
    assert "out.jsonl.card.md: it is not a data card of this command: start again" in message


def test_resume_without_the_input(cli, questions, tmp_path):
    command = ("prepare", "hotpotqa", questions, "-r", "arena", "-o", tmp_path / "out.jsonl")
    cli(*command, code=0)
    questions.unlink()
    assert "hotpot.json" in cli(*command, "--resume", code=2).err
