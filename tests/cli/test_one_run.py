"""Locks of output files: a second run is refused, and a killed run leaves no lock."""

from __future__ import annotations

import json
import os

import pytest

from rag_rewards.errors import UsageError
from rag_rewards.files import lock
from rag_rewards.files.output import Output
from rag_rewards.scoring.stream import open_output

fcntl = pytest.importorskip("fcntl")

REFUSAL = "another run is writing {}: wait until it ends, or choose another output file"


@pytest.fixture
def writing(tmp_path):
    """Return an output that another run is writing, with one row."""
    output = Output(str(tmp_path / "out.jsonl"))
    output.write(b"row of the first run\n")
    output.handle.flush()
    yield output
    output.close()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_second_score_is_refused(cli, write, arena, tmp_path, writing):
    errors = tmp_path / "out.jsonl.errors.jsonl"
    errors.write_text("error of the first run")
    result = cli("score", write([arena(), "{"]), "-r", "arena", "-o", writing.path, code=2)
    assert REFUSAL.format(writing.partial) in result.err
    assert writing.partial.read_bytes() == b"row of the first run\n"
    assert errors.read_text() == "error of the first run"
    writing.commit()
    assert (tmp_path / "out.jsonl").read_bytes() == b"row of the first run\n"
    cli("score", write([arena(), "{"]), "-r", "arena", "-o", writing.path, code=3)


def test_a_second_score_is_refused_before_it_loads_models(cli, write, arena, writing):
    options = ("-o", writing.path, "--nli", "no/such-model")
    result = cli("score", write([arena()]), "-r", "ground-grpo", *options, code=2)
    assert REFUSAL.format(writing.partial) in result.err


def test_a_link_to_the_output_is_the_same_output(cli, write, arena, tmp_path, writing):
    link = tmp_path / "link.jsonl"
    link.symlink_to(writing.path)
    result = cli("score", write([arena()]), "-r", "arena", "-o", link, code=2)
    assert REFUSAL.format(writing.partial) in result.err


def test_parquet_is_locked_until_it_is_renamed(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    path = str(tmp_path / "out.parquet")
    output = open_output(path)
    publish = type(output)._publish

    def interrupted(*arguments):
        with pytest.raises(UsageError, match="another run is writing"):
            open_output(path)
        publish(*arguments)

    monkeypatch.setattr(type(output), "_publish", interrupted)
    output.commit()
    assert names(tmp_path) == ["out.parquet"]


@pytest.mark.parametrize("command", ["select", "probe"])
def test_a_second_run_of_other_commands_is_refused(cli, write, arena, tmp_path, writing, command):
    errors = tmp_path / "out.jsonl.errors.jsonl"
    errors.write_text("error of the first run")
    options = ("-r", "arena", "-o", writing.path)
    result = cli(command, write([arena(), "{"]), *options, code=2)
    assert REFUSAL.format(writing.partial) in result.err
    assert errors.read_text() == "error of the first run"
    assert writing.partial.read_bytes() == b"row of the first run\n"


def test_a_second_prepare_is_refused(cli, write, tmp_path, writing):
    dropped = tmp_path / "out.jsonl.dropped.jsonl"
    dropped.write_text("row of the first run")
    options = ("-o", writing.path, "-r", "arena", "--trainer", "trl")
    result = cli("prepare", "hotpotqa", write([{}], "hotpot.json"), *options, code=2)
    assert REFUSAL.format(writing.partial) in result.err
    assert dropped.read_text() == "row of the first run"
    assert writing.partial.read_bytes() == b"row of the first run\n"


def test_a_device_is_not_locked(tmp_path):
    first, second = Output(os.devnull), Output(os.devnull)
    first.close()
    second.close()


def test_a_partial_file_that_is_a_symbolic_link(cli, write, arena, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "out.jsonl.partial").symlink_to(precious)
    out = tmp_path / "out.jsonl"
    result = cli("score", write([arena()]), "-r", "arena", "-o", out, code=2)
    assert "out.jsonl.partial is a symbolic link: remove it" in result.err
    assert precious.read_text() == "precious"


def test_an_error_file_that_is_a_broken_symbolic_link(cli, write, arena, tmp_path):
    (tmp_path / "out.jsonl.errors.jsonl").symlink_to(tmp_path / "elsewhere")
    cli("score", write([arena(), "{"]), "-r", "arena", "-o", tmp_path / "out.jsonl", code=3)
    assert names(tmp_path) == [
        "in.jsonl",
        "out.jsonl",
        "out.jsonl.errors.jsonl",
    ]
    assert not (tmp_path / "out.jsonl.errors.jsonl").is_symlink()


def test_a_partial_file_that_is_renamed_during_opening(tmp_path, monkeypatch):
    """The first run ends between the second run's opening and its lock."""
    path = tmp_path / "out.jsonl"
    first = Output(str(path))
    first.write(b"first\n")
    flock = fcntl.flock

    def after_the_first_run(*arguments):
        monkeypatch.setattr(lock.fcntl, "flock", flock)
        first.commit()
        flock(*arguments)

    monkeypatch.setattr(lock.fcntl, "flock", after_the_first_run)
    second = Output(str(path))
    assert path.read_bytes() == b"first\n"
    second.write(b"second\n")
    second.commit()
    assert path.read_bytes() == b"second\n"
    assert names(tmp_path) == ["out.jsonl"]


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(lock.fcntl, "flock", unsupported)
    output = Output(str(tmp_path / "out.jsonl"))
    output.write(b"{}\n")
    output.commit()
    assert (tmp_path / "out.jsonl").read_bytes() == b"{}\n"


def test_an_empty_partial_file_is_removed(tmp_path):
    Output(str(tmp_path / "out.jsonl")).close()
    assert names(tmp_path) == []


def test_a_discarded_output_leaves_the_file_of_the_next_run(tmp_path):
    first = Output(str(tmp_path / "out.jsonl"))
    first.write(b"first\n")
    first.commit()
    second = Output(str(tmp_path / "out.jsonl"))
    first.discard()
    assert names(tmp_path) == ["out.jsonl", "out.jsonl.partial"]
    second.close()


def test_a_stopped_run_leaves_no_lock(cli, write, arena, tmp_path):
    out = tmp_path / "out.jsonl"
    source = write([arena(), "{"])
    for _ in range(2):
        cli("score", source, "-r", "arena", "-o", out, "--on-error", "stop", code=2)
    assert json.loads((tmp_path / "out.jsonl.partial").read_text())["id"] == "a"
