"""Runs that are killed at random moments lose no row and score none twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from random_rows import row

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")

SCORE = """
import sys
from rag_rewards.scoring.score_file import score_file
from rag_rewards.scoring.options import ScoreOptions
from rag_rewards.scoring import run
run.shard_bytes = lambda files, workers: 200_000
source, output, recipe, workers = sys.argv[1:]
options = ScoreOptions(source, output, workers=int(workers), resume=True)
score_file(recipe, options)
"""
"""A resumed run with small shards, so that a kill finds some of them complete."""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    rng = random.Random(1)
    path = tmp_path_factory.mktemp("kills") / "in.jsonl"
    rows = ({**row(i, f"g{i // 8}", rng), "id": str(i)} for i in range(6000))
    lines = [json.dumps(each) for each in rows]
    lines[1000] = lines[4000] = "{"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module", params=["ctrl-rag", "arena"])
def recipe(request):
    """Name a recipe whose workers write part files, and one whose workers write to the output."""
    return request.param


@pytest.fixture(scope="module")
def expected(source, recipe):
    """Return the rows and the errors of an unbroken run."""
    whole = source.with_name(f"{recipe}.jsonl")
    run(source, whole, recipe, 1).wait()
    return whole.read_bytes(), whole.with_name(f"{recipe}.jsonl.errors.jsonl").read_bytes()


def run(source, output, recipe, workers):
    arguments = [sys.executable, "-c", SCORE, str(source), str(output), recipe, str(workers)]
    return subprocess.Popen(arguments)


def size(partial):
    """Return the size of a file; 0 if there is none, also if a run has just renamed it."""
    try:
        return partial.stat().st_size
    except FileNotFoundError:
        return 0


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("workers", "kills"),
    [(1, 2), (2, 2), pytest.param(1, 8, marks=SLOW), pytest.param(2, 8, marks=SLOW)],
)
def test_kills_at_random_moments(source, recipe, expected, tmp_path, workers, kills):
    rng, output = random.Random(workers * kills), tmp_path / "out.jsonl"
    partial, finished, killed = tmp_path / "out.jsonl.partial", 0, 0
    while killed < kills:
        before = size(partial)
        process = run(source, output, recipe, workers)
        while process.poll() is None and size(partial) <= before:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.3)
        if process.poll() is None:
            killed += 1
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            finished += 1
            assert output.read_bytes() == expected[0]
            if rng.random() < 0.8:  # otherwise the next run finds a complete output
                for path in (output, output.with_name("out.jsonl.run.json")):
                    os.unlink(path)
    assert run(source, output, recipe, workers).wait() == 0
    errors = output.with_name("out.jsonl.errors.jsonl")
    assert (output.read_bytes(), errors.read_bytes()) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out.jsonl",
        "out.jsonl.errors.jsonl",
        "out.jsonl.run.json",
    ]
