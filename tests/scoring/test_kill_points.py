"""A run that is killed before any operation on its files can be resumed."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
from random_rows import row

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork and no SIGKILL")

RUNS = """
import json, os, shutil, signal, sys
from pathlib import Path

from rag_rewards.scoring.score_file import score_file
from rag_rewards.scoring.options import ScoreOptions
from rag_rewards.scoring import run

source, folder, name, options, size = sys.argv[1:]
run.shard_bytes = lambda files, workers: int(size)
folder, options = Path(folder), json.loads(options)
EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}


def score(point, resume=False):
    "Score in a new process, which is killed before an operation. Returns whether it was killed."
    process = os.fork()
    if process:
        status = os.waitpid(process, 0)[1]
        assert status in (0, signal.SIGKILL), (point, resume, status)
        return status != 0
    operations = 0

    def audit(event, arguments):
        nonlocal operations
        if event in EVENTS and str(folder) in str(arguments[0]):
            operations += 1
            if operations == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    try:
        score_file("ctrl-rag", ScoreOptions(source, str(folder / name), resume=resume, **options))
        os._exit(0)
    finally:
        os._exit(1)


def files():
    paths = [path for path in folder.iterdir() if path.is_file() and path.suffix != ".json"]
    return {path.name: path.read_bytes() for path in paths}


def is_complete():
    "Whether the output is complete, and the run without resume has left no record of it."
    return files() == expected and not any(folder.rglob("*.json"))


def start():
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


start()
assert not score(0)
expected = files()
assert len(list(folder.iterdir())) == len(expected)
for resume in (False, True):
    points, has_killed = 0, True
    while has_killed:
        start()
        points += 1
        has_killed = score(points, resume)
        if not resume and is_complete():
            continue
        score(0, resume=True)
        assert files() == expected, (points, sorted(files()))
        assert len(list(folder.iterdir())) == len(expected) + 1, sorted(folder.iterdir())
print(points)
"""
"""Kill a run before its first operation, its second operation, and so on, and resume it."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("out.jsonl", {}, 4_000),
        ("out.jsonl.gz", {}, 4_000),
        ("out.jsonl", {"sort": True}, 4_000),
        ("out.jsonl", {}, 1 << 20),
    ],
)
def test_a_kill_before_each_operation(tmp_path, name, options, size):
    rng, source = random.Random(1), tmp_path / "in.jsonl"
    lines = [json.dumps({**row(i, f"g{i // 4}", rng), "id": str(i)}) for i in range(24)]
    source.write_text("\n".join([*lines, "{"]) + "\n")
    arguments = [str(source), str(tmp_path / "killed"), name, json.dumps(options), str(size)]
    result = subprocess.run(
        [sys.executable, "-c", RUNS, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 10
