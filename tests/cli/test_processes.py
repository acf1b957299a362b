"""Signals, pipes, workers and terminals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from command_line import COMMAND, ROOT
from processes import WAIT_SECONDS, end, wait_for


@pytest.fixture
def start():
    """Start the command line as a process, which is stopped after the test."""
    running = []

    def run(*arguments, **options):
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            **{"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT} | options,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        end(process)


def children(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True)
    return [int(each) for each in listed.stdout.split()]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


HELD = """
import time
from pathlib import Path

HELD = Path(__file__).with_name("held")

def reward(rollout):
    while rollout.id == "5000" and HELD.exists():
        time.sleep(0.01)
    return float(len(rollout.response))
"""
"""A reward that waits at a row, so that the run does not end."""


def many(row, n=9000):
    return b"".join(json.dumps(row(id=str(i), note="x" * 300)).encode() + b"\n" for i in range(n))


@pytest.fixture
def held(tmp_path, arena):
    """Return the arguments of a run of 9,000 rows that waits at row 5000 while a file exists."""
    (tmp_path / "held.py").write_text(HELD)
    (tmp_path / "held").touch()
    source = tmp_path / "rows.jsonl"
    source.write_bytes(many(arena))
    return ["score", source, "-r", f"{tmp_path / 'held.py'}:reward", "-o", tmp_path / "out.jsonl"]


def half_way(partial):
    """Wait until a run has written rows."""
    wait_for(lambda: partial.exists() and partial.stat().st_size > 1)


@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_a_reader_that_closes_the_pipe(start, write, arena, options):
    source = write([arena(id=str(i)) for i in range(4000)])
    process = start("score", source, "-r", "arena", *options, stdout=subprocess.PIPE)
    assert json.loads(process.stdout.readline())["id"] == "0"
    process.stdout.close()
    assert process.wait(WAIT_SECONDS) == 2
    assert process.stderr.read() == b""


@pytest.mark.parametrize("command", [["recipes", "--json"], ["score", "-", "-r", "arena"]])
def test_a_reader_that_has_closed_the_pipe_before(start, arena, command):
    read, write_end = os.pipe()
    os.close(read)
    process = start(*command, stdout=write_end)
    os.close(write_end)
    process.stdin.write(many(arena, 10))
    process.stdin.close()
    assert process.wait(WAIT_SECONDS) == 2
    assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_ctrl_c_and_sigterm(start, held, tmp_path, options, number):
    out, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    process = start(*held, *options)
    half_way(partial)
    workers = children(process.pid)
    process.send_signal(number)
    assert process.wait(WAIT_SECONDS) == 2
    message = process.stderr.read().decode()
    assert "interrupted; rows scored so far are in the .partial file" in message
    assert "Traceback" not in message
    assert not out.exists()
    rows = [json.loads(line)["id"] for line in partial.read_text().splitlines()]
    assert rows == [str(i) for i in range(len(rows))]
    assert len(rows) >= 512
    wait_for(lambda: not any(map(alive, workers)))
    # With workers, a process of Python removes their semaphores.
    assert len(workers) == (3 if "--workers" in options else 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_while_sorting_preserve_scored_rows(start, likely, tmp_path, number):
    out = tmp_path / "out.jsonl"
    source = tmp_path / "in.jsonl"
    source.write_bytes(many(lambda **row: likely(**row, group=f"g{int(row['id']) // 4}"), 60_000))
    process = start("score", source, "-r", "ctrl-rag", "--sort", "-o", out)
    partial = tmp_path / "out.jsonl.partial"
    wait_for(partial.exists)
    time.sleep(0.6)
    process.send_signal(number)
    code = process.wait(WAIT_SECONDS)
    assert b"Traceback" not in process.stderr.read()
    if code == 0:
        pytest.skip("this machine was done before it was interrupted")
    assert code == 2
    # A run that was interrupted before its first score leaves no partial file.
    lines = partial.read_text().splitlines() if partial.exists() else []
    assert [json.loads(line)["id"] for line in lines] == [str(i) for i in range(len(lines))]


@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_kill(start, held, tmp_path, options):
    out, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    process = start(*held, *options)
    half_way(partial)
    workers = children(process.pid)
    process.kill()
    assert process.wait(WAIT_SECONDS) == -signal.SIGKILL
    wait_for(lambda: not any(map(alive, workers)))
    assert not out.exists()
    lines = partial.read_bytes().split(b"\n")[:-1]
    assert [json.loads(line)["id"] for line in lines] == [str(i) for i in range(len(lines))]
    assert process.stderr.read() == b""


@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_a_second_run_is_refused_until_the_first_is_killed(
    start, cli, write, arena, held, tmp_path, options
):
    out, source = tmp_path / "out.jsonl", write([arena(id="second")])
    first = start(*held, *options)
    partial = tmp_path / "out.jsonl.partial"
    half_way(partial)
    result = cli("score", source, "-r", "arena", "-o", out, code=2)
    assert f"another run is writing {partial}" in result.err
    assert not out.exists()
    first.kill()
    assert first.wait(WAIT_SECONDS) == -signal.SIGKILL
    cli("score", source, "-r", "arena", "-o", out, code=0)
    assert json.loads(out.read_text())["id"] == "second"
    assert not partial.exists()


def test_a_killed_worker_is_replaced(start, held, tmp_path):
    out = tmp_path / "out.jsonl"
    process = start(*held, "--workers", "2")
    half_way(tmp_path / "out.jsonl.partial")
    for worker in children(process.pid):
        os.kill(worker, signal.SIGKILL)
    (tmp_path / "held").unlink()
    assert process.wait(WAIT_SECONDS) == 0, process.stderr.read()
    assert out.read_bytes().count(b"\n") == 9000


def test_the_output_does_not_depend_on_the_number_of_workers(cli, write, arena, tmp_path):
    rows = [arena(id=str(i), response=f"<answer>{i}</answer>") for i in range(1700)]
    rows[3] = rows[900] = "{"
    outputs, errors = set(), set()
    for workers in (1, 2, 3):
        out = tmp_path / "out.jsonl"
        cli("score", write(rows), "-r", "arena", "-o", out, "--workers", workers, code=3)
        outputs.add(out.read_bytes())
        errors.add((tmp_path / "out.jsonl.errors.jsonl").read_bytes())
    assert len(outputs) == len(errors) == 1


def test_stop_with_workers(cli, write, arena, tmp_path):
    rows = [arena(id=str(i)) for i in range(1700)]
    rows[700] = "{"
    out = tmp_path / "out.jsonl"
    options = ("--workers", "2", "--on-error", "stop")
    result = cli("score", write(rows), "-r", "arena", "-o", out, *options, code=2)
    assert "stopped at line 701" in result.err
    assert "700 rows before it" in result.err


def test_modules_in_the_current_folder_are_not_imported(start, write, arena, tmp_path):
    (tmp_path / "msgspec.py").write_text("raise SystemExit('not this one')")
    source, script = write([arena()]), tmp_path / "bin" / "rr.py"
    script.parent.mkdir()
    script.write_text("from rag_rewards.cli import main\nmain()\n")
    done = subprocess.run(
        [sys.executable, script, "score", source, "-r", "arena", "--workers", "2"],
        cwd=tmp_path,
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reward"] == 13.0


@pytest.mark.parametrize("recipe", ["ground-grpo", "lear"])
def test_the_output_does_not_depend_on_the_hash_seed(shell, recipe):
    message = {
        shell("score", f"examples/{recipe}.jsonl", "-r", recipe, env={"PYTHONHASHSEED": seed})
        for seed in ("0", "1")
    }
    assert len(message) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize(
    ("terminal", "options", "drawn"),
    [("xterm", [], True), ("dumb", [], False), ("xterm", ["-o", "{out}"], True)],
)
def test_progress_on_a_terminal(start, write, arena, tmp_path, terminal, options, drawn):
    import pty

    source = write([arena(id=str(i)) for i in range(3000)])
    options = [each.format(out=tmp_path / "out.jsonl") for each in options]
    ours, theirs = pty.openpty()
    process = start(
        "score",
        source,
        "-r",
        "arena",
        *options,
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"TERM": terminal, "COLUMNS": "200"},
    )
    os.close(theirs)
    message = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:
            break
        if not block:
            break
        message += block
    os.close(ours)
    assert process.wait(WAIT_SECONDS) == 0
    assert (b"rows \xc2\xb7" in message) == drawn
    assert b"3,000 scored, 0 in error" in message


def test_no_progress_without_a_terminal(shell, write, arena):
    message = shell("score", write([arena()]), "-r", "arena", "-o", "/dev/null", code=0).err
    assert "\x1b" not in message
    assert "reading" not in message
    assert len(message.splitlines()) == 3


def test_ctrl_c_while_modules_load(shell, tmp_path):
    (tmp_path / "cyclopts.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "adapters")])
    result = shell("recipes", env={"PYTHONPATH": path}, code=2)
    assert (result.out, result.err) == ("", "rag-rewards: interrupted\n")
