"""Measure `score` with one worker and with two, on JSON lines of 1.7 KB and 8 KB per row.

    python benchmarks/shards.py                        # about 15 minutes; writes results/shards.md
    python benchmarks/shards.py --rows 20000 --rounds 1 --no-write
    python benchmarks/shards.py --before ../older      # also the sources of an older version
    python benchmarks/shards.py --folder /dev/shm      # files in memory, about 10 GB

Each round measures one worker, two workers, and the limit: two separate processes, each with one
worker and a half of the file. The rounds are interleaved, and a ratio is the median of the ratios
within the rounds, so that other processes on the machine change it little. Times are those of whole
commands, with the start of all processes. Measure on a quiet machine with two cores or more. Two
workers write more than 200 MB per second: on a slower disk, its speed limits them.
"""

import argparse
import filecmp
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import rollouts
from harness import Page, machine, parser, place, ratio

HERE = Path(__file__).resolve().parent
SIZES = {"1.7 KB": ("naive-grpo", 1_700, 1_000_000), "8 KB": ("arena", 8_192, 300_000)}
DISTINCT = 2_000
TARGET = 1.8


def start(
    source: Path, output: Path, recipe: str, workers: int, tree: Path
) -> subprocess.Popen[bytes]:
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "rag_rewards", "score", str(source), "-r", recipe]
    command += ["-o", str(output), "--workers", str(workers)]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)


def seconds(*runs: tuple[Path, Path, str, int, Path]) -> float:
    """Return the time in which commands run at once."""
    begin = time.perf_counter()
    for process in [start(*run) for run in runs]:
        if process.wait() != 0:
            raise SystemExit(f"a command ended with exit code {process.returncode}")
    return time.perf_counter() - begin


def halves(source: Path) -> list[Path]:
    """Write the lines of a file to two files of about equal size."""
    paths = [source.with_name(f"half-{i}.jsonl") for i in range(2)]
    with source.open("rb") as handle:
        handle.seek(source.stat().st_size // 2)
        handle.readline()
        middle = handle.tell()
        handle.seek(0)
        for path, size in zip(paths, (middle, source.stat().st_size - middle), strict=True):
            with path.open("wb") as half:
                while size and (block := handle.read(min(size, 1 << 20))):
                    half.write(block)
                    size -= len(block)
    return paths


def measure(name: str, folder: Path, options: argparse.Namespace) -> list[str]:
    """Return a line of the table."""
    recipe, size, count = SIZES[name]
    source, output = folder / "in.jsonl", folder / "out.jsonl"
    count = options.rows or count
    rollouts.write_jsonl(source, recipe, count, size, DISTINCT)
    first, second = halves(source)
    tree = HERE.parent
    times: dict[str, list[float]] = {"one": [], "two": [], "limit": [], "before": []}
    for _ in range(options.rounds):
        times["one"].append(seconds((source, output, recipe, 1, tree)))
        one = output.replace(folder / "one.jsonl")
        times["two"].append(seconds((source, output, recipe, 2, tree)))
        if not filecmp.cmp(output, one, shallow=False):
            raise SystemExit("the outputs of one worker and of two differ")
        half = [(path, path.with_suffix(".out"), recipe, 1, tree) for path in (first, second)]
        times["limit"].append(seconds(*half))
        if options.before:
            times["before"].append(seconds((source, output, recipe, 1, options.before)))
    gain, limit = ratio(times["one"], times["two"]), ratio(times["one"], times["limit"])
    rate = count / min(times["one"])
    line = [name, recipe, f"{rate:,.0f}", f"{gain:.2f}", f"{limit:.2f}"]
    if options.before:
        line.append(f"{ratio(times['before'], times['one']):.2f}")
    return line


def main() -> None:
    options = arguments()
    page = Page(
        "Shards",
        "Speed of `score` with two workers, and of two separate processes that each score a half "
        f"of the file, against one worker; {machine()}. Median of {options.rounds} interleaved "
        f"rounds, with files {place(options.folder)}. The target for two workers is {TARGET}.",
    )
    header = ["row", "recipe", "rows per second, 1 worker", "2 workers", "2 processes"]
    header += ["against the older version, 1 worker"] if options.before else []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        page.table(*header, rows=(measure(name, Path(folder), options) for name in SIZES))
    if not options.no_write:
        page.write("shards")


def arguments() -> argparse.Namespace:
    options = parser(__doc__, rounds=3)
    options.add_argument("--rows", type=int, help="number of rows of each size")
    options.add_argument("--before", type=Path, help="folder with the sources of an older version")
    options.add_argument(
        "--folder", type=Path, help="folder of the files, default: that of the system"
    )
    options.add_argument("--no-write", action="store_true", help="do not write the result")
    return options.parse_args()


if __name__ == "__main__":
    main()
