"""`score` with a judge: runs that are killed, two runs with one cache, and a full disk."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import COMMAND, ROOT
from processes import end, finish, wait_for

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from judge_server import JudgeServer, Reply, Request

ROWS = 40
Write = Callable[..., Path]


def rows(count: int = ROWS) -> list[dict[str, Any]]:
    """Return rows of truthrl whose answers no rule decides."""
    return [
        {
            "id": str(i),
            "question": f"Which river runs through town {i}?",
            "response": f"\\boxed{{the long river number {i}}}",
            "answers": [f"river {i} of the north"],
        }
        for i in range(count)
    ]


def verdict_of(request: Request) -> Reply:
    """Return a verdict that depends on the texts of a request only, with 1.5 kB of explanation."""
    score = sum(request.raw) % 2
    explanation = "because of the river " * 75
    return Reply(f'{{"explanation": "{explanation}", "score": {score}}}', delay=0.002)


def start(
    source: Path, out: Path, url: str, cache: Path, *more: str, **options: Any
) -> subprocess.Popen[bytes]:
    judge = ["--judge", url, "--judge-model", "m", "--judge-cache", str(cache)]
    command = [*COMMAND, "score", str(source), "-o", str(out), "-r", "truthrl", *judge, *more]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, **options)


def complete(process: subprocess.Popen[bytes]) -> str:
    """Wait for a run that scores all rows, and return its messages."""
    messages = finish(process)[1].decode()
    assert process.returncode == 0, messages
    return messages


def stored(cache: Path) -> int:
    """Return the number of verdicts in a cache."""
    with closing(sqlite3.connect(cache)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return int(connection.execute("SELECT count(*) FROM verdicts").fetchone()[0])


def has_stored(cache: Path, count: int) -> bool:
    """Return whether a cache, which a run may just be creating, contains this many verdicts."""
    with contextlib.suppress(sqlite3.Error):
        return cache.exists() and stored(cache) == count
    return False


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the output of a run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("unbroken")
    source = folder / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    with JudgeServer(verdict_of) as server:
        complete(start(source, folder / "whole.jsonl", server.url, folder / "whole.db"))
        assert len(server.requests) == ROWS
    return (folder / "whole.jsonl").read_bytes()


@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_a_killed_run_continues_with_the_verdicts_that_were_paid(
    tmp_path: Path, write: Write, unbroken: bytes, more: tuple[str, ...]
) -> None:
    """The server answers a random number of requests, and the others never.

    The run is killed when the answers are in the cache. The next run sends only the other requests,
    to a server of its own: the first one can receive requests of the killed run at any time.
    """
    answered = random.Random(len(more)).randrange(1, ROWS - 1)
    source, out, cache = write(rows()), tmp_path / "out.jsonl", tmp_path / "verdicts.db"

    def behave(request: Request) -> Reply:
        return verdict_of(request) if request.number < answered else Reply(hang=True)

    with JudgeServer(behave) as server:
        process = start(source, out, server.url, cache, *more)
        try:
            wait_for(lambda: has_stored(cache, answered))
        finally:
            end(process)
    with JudgeServer(verdict_of) as server:
        complete(start(source, out, server.url, cache, *more))
        assert len(server.requests) == ROWS - answered
    assert out.read_bytes() == unbroken
    assert stored(cache) == ROWS


def test_a_run_that_is_killed_at_any_time_loses_only_answers_in_flight(
    tmp_path: Path, write: Write, unbroken: bytes
) -> None:
    source, out, cache = write(rows()), tmp_path / "out.jsonl", tmp_path / "verdicts.db"
    kill_at = random.Random(7).randrange(1, ROWS)
    running: list[subprocess.Popen[bytes]] = []

    def behave(request: Request) -> Reply:
        if request.number == kill_at:
            running[0].kill()
        return verdict_of(request)

    with JudgeServer(behave) as server:
        running.append(start(source, out, server.url, cache))
        finish(running[0])
        complete(start(source, out, server.url, cache))
        counts = Counter(request.raw for request in server.requests)
    assert out.read_bytes() == unbroken
    assert len(counts) == ROWS
    assert max(counts.values()) <= 2


def test_two_runs_share_one_cache(tmp_path: Path, write: Write, unbroken: bytes) -> None:
    source, cache = write(rows()), tmp_path / "verdicts.db"
    outs = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    with JudgeServer(verdict_of) as server:
        processes = [start(source, out, server.url, cache) for out in outs]
        for process in processes:
            complete(process)
        counts = Counter(request.raw for request in server.requests)
        assert len(counts) == ROWS
        assert max(counts.values()) <= 2
        complete(start(source, tmp_path / "three.jsonl", server.url, cache))
        assert len(server.requests) == counts.total()
    for out in [*outs, tmp_path / "three.jsonl"]:
        assert out.read_bytes() == unbroken
    assert stored(cache) == ROWS


def limit_file_size() -> None:
    """Let writes fail beyond 64 kB of a file, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))


def test_a_cache_on_a_full_disk_loses_no_verdict(
    tmp_path: Path, write: Write, unbroken: bytes
) -> None:
    source, out, cache = write(rows()), tmp_path / "out.jsonl", tmp_path / "verdicts.db"
    with JudgeServer(verdict_of) as server:
        process = start(source, out, server.url, cache, preexec_fn=limit_file_size)
        messages = complete(process)
        assert "could not be written" in messages
        assert out.read_bytes() == unbroken
        kept = stored(cache)
        assert kept < ROWS
        complete(start(source, tmp_path / "again.jsonl", server.url, cache))
        assert len(server.requests) == ROWS + ROWS - kept
    assert (tmp_path / "again.jsonl").read_bytes() == unbroken
