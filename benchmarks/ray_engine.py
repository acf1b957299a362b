"""Measure `score --engine ray` against the local engine, and two workers on Ray against one.

    python benchmarks/ray_engine.py                   # 1,000,000 rows; writes results/ray_engine.md
    python benchmarks/ray_engine.py --rows 50000 --rounds 1 --no-write

Rows have 1.7 KB. Times are those of whole commands. Some start and end a Ray cluster on this
machine; the others use a cluster that runs already, as commands on several machines do. The rounds
are interleaved, and a ratio is the median of the ratios within the rounds.
The script needs a quiet machine with two cores or more, and disk space for four times the input.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import rollouts
from harness import Page, machine, parser, place, ratio

HERE = Path(__file__).resolve().parent
RECIPE, ROW_BYTES, DISTINCT = "naive-grpo", 1_700, 2_000
SLOWER, GAIN = 1.25, 1.8
"""Targets: time of Ray against the local engine at most, and gain of two workers at least."""
TOKEN = secrets.token_hex(32)
CLUSTER = """
import ray, sys
ray.init(address="local", include_dashboard=False, object_store_memory=80 << 20)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


class Way(NamedTuple):
    """A way to score the file. `running` uses a cluster that runs already."""

    engine: str
    workers: int
    running: bool = False
    parts: bool = False

    @property
    def cells(self) -> list[str]:
        """The first cells of a row of the table."""
        cluster = "" if self.engine == "local" else "running" if self.running else "new"
        return [self.engine, cluster, "parts" if self.parts else "file", str(self.workers)]


LOCAL = Way("local", 1)
RAY = [
    (Way("ray", 1, running, parts), Way("ray", 2, running, parts))
    for running, parts in ((False, False), (True, False), (True, True))
]
"""One worker and two, for each kind of cluster and of output."""


@contextlib.contextmanager
def cluster() -> Iterator[str]:
    """Start a cluster on this machine, and yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
    )
    try:
        address = process.stdout.readline().strip() if process.stdout else ""
        if not address:
            raise SystemExit("the cluster did not start")
        yield address
    finally:
        process.communicate()


def environment() -> dict[str, str]:
    own = {
        "PYTHONPATH": str(HERE.parent),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
    }
    return {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | own


def seconds(source: Path, output: Path, way: Way) -> float:
    """Score a file and return the duration of the command."""
    if output.is_dir():
        shutil.rmtree(output)
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "rag_rewards", "score", str(source), "-r", RECIPE]
    command += ["-o", str(output), "--engine", way.engine, "--workers", str(way.workers)]
    command += ["--output-format", "parts"] * way.parts
    with contextlib.ExitStack() as stack:
        if way.running:
            command += ["--ray-address", stack.enter_context(cluster())]
        begin = time.perf_counter()
        subprocess.run(command, env=environment(), stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begin


def measure(folder: Path, rows: int, rounds: int) -> dict[Way, list[float]]:
    """Return the durations of each way. Stops if two outputs differ."""
    source, local, remote = (folder / name for name in ("in.jsonl", "local.jsonl", "ray.jsonl"))
    rollouts.write_jsonl(source, RECIPE, rows, ROW_BYTES, DISTINCT)
    times: dict[Way, list[float]] = {}
    for _ in range(rounds):
        times.setdefault(LOCAL, []).append(seconds(source, local, LOCAL))
        for way in (way for pair in RAY for way in pair):
            times.setdefault(way, []).append(seconds(source, remote, way))
            if digest(remote) != digest(local):
                raise SystemExit("the outputs of the engines differ")
            print(*way.cells, f"{times[way][-1]:.1f} s", file=sys.stderr, flush=True)
    return times


def digest(output: Path) -> bytes:
    """Return the digest of the scored rows in a file, or in a folder of part files."""
    parts = sorted(output.glob("part-?????.jsonl")) if output.is_dir() else [output]
    rows = hashlib.sha256()
    for part in parts:
        with part.open("rb") as handle:
            while block := handle.read(1 << 20):
                rows.update(block)
    return rows.digest()


def main() -> None:
    options = arguments()
    page = Page(
        "Engine on Ray",
        f"`score -r {RECIPE}`, {options.rows:,} rows of 1.7 KB, files {place(options.folder)}; "
        f"{machine()}. Median of {options.rounds} interleaved rounds. The start and the end of a "
        "new cluster are included.",
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        times = measure(Path(folder), options.rows, options.rounds)
    page.table("engine", "cluster", "output", "workers", "seconds", "rows per second")
    for way, durations in times.items():
        median = statistics.median(durations)
        page.row(*way.cells, f"{median:.1f}", f"{options.rows / median:,.0f}")
    slower = ratio(times[RAY[0][0]], times[LOCAL])
    new, running, parts = (ratio(times[one], times[two]) for one, two in RAY)
    page.add(
        "",
        f"With a new cluster, one worker takes {slower:.2f} times as long as the local engine "
        f"(target: at most {SLOWER}). Two workers are {new:.2f} times as fast as one with a new "
        f"cluster, {running:.2f} times with a running one, and {parts:.2f} times with a running "
        f"one and part files (target: {GAIN}).",
    )
    if not options.no_write:
        page.write("ray_engine")


def arguments() -> argparse.Namespace:
    options = parser(__doc__, rows=1_000_000, rounds=3)
    options.add_argument("--no-write", action="store_true", help="do not write the result")
    options.add_argument(
        "--folder", type=Path, help="folder of the files, default: that of the system"
    )
    return options.parse_args()


if __name__ == "__main__":
    main()
