"""What benchmarks share: options, the machine, commands as processes, and pages of results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
BUILD = HERE.parent / "build" / "bench"
"""The folder of test rows and of other versions, which git ignores."""


def parser(doc: str | None, **numbers: int) -> argparse.ArgumentParser:
    """Return a parser of arguments with an option for each number and its default."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser


def labelled_files(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser of files of labelled answers."""
    arguments = parser(doc)
    arguments.add_argument("files", type=Path, nargs="+")
    return arguments


def machine() -> str:
    """Return the machine, its load and the version of Python."""
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the "
        f"start, Python {platform.python_version()}"
    )


def processor() -> str:
    """Return the model of the CPU and the number of cores, as far as the system names them."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(names, "") or platform.processor() or platform.machine() or "unknown CPU"
    return f"{name}, {os.cpu_count()} cores"


def place(folder: Path | None) -> str:
    """Return where the files of a folder are."""
    in_memory = folder is not None and Path("/dev/shm") in (folder, *folder.parents)  # noqa: S108
    return "in memory" if in_memory else "on a disk"


def run_command(
    *arguments: object, limit: float = 600, codes: Sequence[int] = (0, 3)
) -> dict[str, float]:
    """Run `rag-rewards` in the build folder; return its usage as `spawn.py` measures it.

    seconds, processor  elapsed and processor seconds
    peak                memory in bytes
    code                one of `codes`: 0, or 3 if rows were not scored

    Raises SystemExit for another exit code.
    """
    command = [sys.executable, "-m", "rag_rewards", *map(str, arguments)]
    spawn = [sys.executable, "-I", str(HERE / "spawn.py"), str(limit), *command]
    BUILD.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(spawn, capture_output=True, text=True, check=True, cwd=BUILD)
    usage: dict[str, float] = json.loads(done.stdout)
    if usage["code"] not in codes:
        raise SystemExit(f"{' '.join(command)} ended with {usage['code']}:\n{done.stderr}")
    return usage


def usage_cells(usage: Mapping[str, float], rows: int) -> list[str]:
    """Return seconds, processor seconds, rows per second and peak memory as cells of a table."""
    return [
        f"{usage['seconds']:.1f}",
        f"{usage['processor']:.1f}",
        f"{rows / usage['seconds']:,.0f}",
        f"{usage['peak'] / 1e6:,.0f} MB",
    ]


def ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """Return the median of the ratios within the rounds."""
    return statistics.median(one / other for one, other in zip(slow, fast, strict=True))


class Page:
    """A page of results, whose lines are also printed.

    >>> page = Page("Speed", "Two figures.")
    # Speed
    <BLANKLINE>
    Two figures.
    <BLANKLINE>
    >>> page.table("method", "seconds")
    | method | seconds |
    | --- | --- |
    >>> page.row("naive", 2.5)
    | naive | 2.5 |
    """

    def __init__(self, title: str, *introduction: str) -> None:
        self.lines: list[str] = []
        self.add(f"# {title}", "")
        for paragraph in introduction:
            self.add(paragraph, "")

    def add(self, *lines: str) -> None:
        """Add lines."""
        for line in lines:
            print(line, flush=True)
        self.lines += lines

    def extend(self, lines: Iterable[str]) -> None:
        """Add lines as soon as they are measured."""
        for line in lines:
            self.add(line)

    def table(self, *heads: str, rows: Iterable[Sequence[object]] = ()) -> None:
        """Begin a table, and add rows to it."""
        self.row(*heads)
        self.add(f"| {' | '.join(['---'] * len(heads))} |")
        for row in rows:
            self.row(*row)

    def row(self, *cells: object) -> None:
        """Add a row to a table."""
        self.add(f"| {' | '.join(map(str, cells))} |")

    def write(self, name: str) -> None:
        """Write the lines to `results/NAME.md`."""
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.md").write_text("\n".join(self.lines) + "\n", "utf-8")
