"""Kill runs with a judge at random moments, and count the verdicts that are paid for twice.

    python tests/soak/judge_kills.py [--kills 40] [--rows 300] [--seed 0] [--output FILE]

A local HTTP server is the judge. It answers with verdicts that depend on the request alone, and
with faults: 429 with Retry-After, 5xx, cut connections and texts that are no chat completion. A run
of `score --resume` with `--judge-cache` is killed with SIGKILL after a random number of requests,
and started again until it completes. Then its output must have the bytes of an unbroken run without
faults. In half of the rounds, a second run with another output uses the same cache at the same
time.

A verdict is paid for twice if the server answers two requests with the same body. At a kill, this
can happen only to answers that are not in the cache yet, at most one for each request at the same
time. Two runs at the same time can also send the same request before one of them has the answer.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from faulty_judge import SERVER_FAULTS
from judge_server import JudgeServer, Reply, Request
from kills import COMMAND, opening

CONCURRENCY = 64
"""Number of requests of a run at the same time."""
FAULT_SHARE = 0.1
"""Share of the requests that fail."""


@dataclass
class Judge:
    """The behaviour of the server: verdicts, faults, and the kill of a run."""

    rng: random.Random
    faults: float
    paid: Counter[bytes] = field(default_factory=Counter)
    victim: subprocess.Popen[bytes] | None = None
    requests_until_kill: int = 0

    def __call__(self, request: Request) -> Reply:
        self.requests_until_kill -= 1
        if self.victim is not None and self.requests_until_kill <= 0:
            self.victim.send_signal(signal.SIGKILL)
            self.victim = None
        if self.rng.random() < self.faults:
            return self.rng.choice(SERVER_FAULTS)
        self.paid[request.raw] += 1
        score = sum(request.raw) % 2
        return Reply(f'{{"explanation": "", "score": {score}}}', delay=self.rng.uniform(0, 0.02))


@dataclass
class Result:
    """The counts of all rounds."""

    kills: int = 0
    rounds: int = 0
    verdicts: int = 0
    single_kills: int = 0
    paid_twice: int = 0
    paid_twice_by_two_runs: int = 0
    different: int = 0
    failed: int = 0
    damaged: int = 0


def write_rows(path: Path, count: int) -> None:
    """Write rows of truthrl whose answers no rule decides."""
    rows = (
        {
            "id": str(i),
            "question": f"Which river runs through town {i}?",
            "response": f"\\boxed{{the long river number {i}}}",
            "answers": [f"river {i} of the north"],
        }
        for i in range(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def start(source: Path, out: Path, url: str, cache: Path) -> subprocess.Popen[bytes]:
    judge = ["--judge", url, "--judge-model", "m", "--judge-cache", str(cache)]
    judge += ["--set", "models.judge_retries=8"]
    command = [*COMMAND, "score", str(source), "-o", str(out), "-r", "truthrl", *judge, "--resume"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run_round(
    folder: Path, source: Path, expected: bytes, rng: random.Random, kills: int, result: Result
) -> None:
    """Kill a run a few times, complete it, and compare its output."""
    out, other = folder / "out.jsonl", folder / "other.jsonl"
    cache = folder / "verdicts.db"
    judge = Judge(rng, faults=FAULT_SHARE)
    rows = expected.count(b"\n")
    with JudgeServer(judge) as server:
        second = start(source, other, server.url, cache) if rng.random() < 0.5 else None
        for _ in range(kills):
            judge.requests_until_kill = rng.randrange(1, rows)
            judge.victim = process = start(source, out, server.url, cache)
            result.kills += process.wait() == -signal.SIGKILL
            judge.victim = None
        finished = [start(source, out, server.url, cache), *([second] if second else [])]
        result.failed += sum(process.wait() != 0 for process in finished)
    outputs = [out, *([other] if second else [])]
    result.different += sum(not path.exists() or path.read_bytes() != expected for path in outputs)
    result.rounds += 1
    result.verdicts += len(judge.paid)
    paid_twice = judge.paid.total() - len(judge.paid)
    if second:
        result.paid_twice_by_two_runs += paid_twice
    else:
        result.single_kills += kills
        result.paid_twice += paid_twice
    with closing(sqlite3.connect(cache)) as connection:
        intact = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        stored = connection.execute("SELECT count(*) FROM verdicts").fetchone()[0]
    result.damaged += not (intact and stored == rows)


def report(result: Result, options: argparse.Namespace, seconds: float) -> str:
    """Return the results as a page."""
    share = result.paid_twice / max(result.single_kills, 1)
    return f"""# Kills of runs with a judge

{opening("soak-judge", result.kills, result.rounds, options.seed)} A round \
has {options.rows} rows,
and {FAULT_SHARE:.0%} of its requests fail. In half of the rounds, two runs share the cache. All \
rounds took {seconds / 60:.1f} minutes.

| measure | count |
| --- | --- |
| outputs with other bytes than an unbroken run without faults | {result.different} |
| completed runs with another exit code than 0 | {result.failed} |
| damaged or incomplete caches | {result.damaged} |
| different verdicts | {result.verdicts:,} |
| verdicts that were paid for twice in rounds with one run | {result.paid_twice:,} |
| these for each kill (at most {CONCURRENCY} requests at the same time) | {share:.1f} |
| verdicts that were paid for twice in rounds with two runs | {result.paid_twice_by_two_runs:,} |
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", help="write the results to this file")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    result = Result()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "rows.jsonl"
        write_rows(source, options.rows)
        whole = Path(name) / "whole.jsonl"
        with JudgeServer(Judge(rng, faults=0.0)) as server:
            if start(source, whole, server.url, Path(name) / "whole.db").wait() != 0:
                raise SystemExit("the unbroken run failed")
        while result.kills < options.kills:
            folder = Path(name) / str(result.rounds)
            folder.mkdir()
            kills = min(rng.randrange(1, 5), options.kills - result.kills)
            run_round(folder, source, whole.read_bytes(), rng, kills, result)
            print(result, flush=True)
    page = report(result, options, time.perf_counter() - began)
    print(page)
    if options.output:
        Path(options.output).write_text(page, "utf-8")
    return int(bool(result.different or result.failed or result.damaged))


if __name__ == "__main__":
    sys.exit(main())
