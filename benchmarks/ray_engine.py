"""Measure `score --engine ray` against the local engine, and two workers on Ray against one.

    python benchmarks/ray_engine.py                   # 1,000,000 rows; writes results/ray_engine.md
    python benchmarks/ray_engine.py --rows 50000 --rounds 1 --no-write

Rows have 1.7 KB. Times are those of whole commands, with the start and the end of a Ray cluster on
this machine. The rounds are interleaved, and a ratio is the median of the ratios within the rounds.
The script needs a quiet machine with two cores or more, and disk space for four times the input.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import rollouts

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "ray_engine.md"
RECIPE, ROW_BYTES, DISTINCT = "naive-grpo", 1_700, 2_000
SLOWER, GAIN = 1.25, 1.8
"""Targets: time of Ray against the local engine at most, and gain of two workers at least."""


def seconds(source: Path, output: Path, engine: str, workers: int) -> float:
    """Score a file and return the duration of the command."""
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "rag_rewards", "score", str(source), "-r", RECIPE]
    command += ["-o", str(output), "--engine", engine, "--workers", str(workers), "--no-progress"]
    environment = os.environ | {"PYTHONPATH": str(HERE.parent), "RAY_USAGE_STATS_ENABLED": "0"}
    environment.pop("RAY_ADDRESS", None)
    begin = time.perf_counter()
    subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def measure(folder: Path, rows: int, rounds: int) -> dict[str, list[float]]:
    """Return the durations of each configuration. Stops if two outputs differ."""
    source, local, remote = (folder / name for name in ("in.jsonl", "local.jsonl", "ray.jsonl"))
    rollouts.write_jsonl(source, RECIPE, rows, ROW_BYTES, DISTINCT)
    times: dict[str, list[float]] = {"local": [], "ray": [], "ray 2": []}
    for _ in range(rounds):
        times["local"].append(seconds(source, local, "local", 1))
        for name, workers in (("ray", 1), ("ray 2", 2)):
            times[name].append(seconds(source, remote, "ray", workers))
            if not filecmp.cmp(local, remote, shallow=False):
                raise SystemExit("the outputs of the engines differ")
    return times


def ratio(slow: list[float], fast: list[float]) -> float:
    """Return the median of the ratios within the rounds."""
    return statistics.median(one / other for one, other in zip(slow, fast, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help="do not write the result")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = measure(Path(folder), options.rows, options.rounds)
    slower, gain = ratio(times["ray"], times["local"]), ratio(times["ray"], times["ray 2"])
    lines = ["| engine | workers | seconds | rows per second |", "| --- | --- | --- | --- |"]
    for name, workers in (("local", 1), ("ray", 1), ("ray 2", 2)):
        median = statistics.median(times[name])
        rate = f"{options.rows / median:,.0f}"
        lines.append(f"| {name.split()[0]} | {workers} | {median:.1f} | {rate} |")
    text = "\n".join(lines)
    summary = (
        f"Ray with one worker takes {slower:.2f} times as long as the local engine (target: at "
        f"most {SLOWER}). Two workers on Ray gain {gain:.2f} times (target: {GAIN})."
    )
    print(text, summary, sep="\n\n")
    if not options.no_write:
        intro = (
            "# Engine on Ray\n\n"
            f"`score -r {RECIPE}`, {options.rows:,} rows of 1.7 KB; {platform.machine()}, "
            f"{os.cpu_count()} cores, Python\n{platform.python_version()}. Median of "
            f"{options.rounds} interleaved rounds, with the start of the cluster.\n\n"
        )
        RESULT.write_text(f"{intro}{text}\n\n{summary}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
