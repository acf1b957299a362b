"""Speed of this version relative to version 0.1.0, on the same rows in alternation.

Each version runs in a process of its own: PYTHONPATH selects the checkout. All figures are
processor times, so that a ratio above 1 means that this version is faster. The processor of a
shared machine changes its speed within seconds, so the versions take turns after each pass over the
rows of a recipe, which takes a fraction of a second.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import rollouts

HERE = Path(__file__).resolve().parent
COMMIT = "2899a7e"
VERSION = "0.1.0"
ALTERNATIONS = 5
ROWS, PASSES = 4_000, 15
FILE_ROWS, FILE_BYTES = 20_000, 1_700
TARGET = 1.0
ROUNDING = 1e-9
"""Rewards that differ by less have other rounding errors: sums are exact since version 0.5.0."""

CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "naive-grpo": ("naive-grpo", {}, "naive-grpo"),
    "arena": ("arena", {}, "arena"),
    "truthrl, verifier=exact": ("truthrl", {"verifier": "exact"}, "truthrl"),
    "rag-total": ("rag-total", {}, "ctrl-rag"),
    "ctrl-rag, stored evidence": ("ctrl-rag", {}, "ctrl-rag"),
    "lear": ("lear", {}, "lear"),
    "ground-grpo, citation.judge_by=gold": (
        "ground-grpo",
        {"citation.judge_by": "gold"},
        "ground-grpo",
    ),
}
"""Recipe, settings and style of the rows by the name of a line of the table."""
HARDENED: dict[str, tuple[str, dict[str, Any], str]] = {
    "truthrl, verifier=substring": ("truthrl", {"verifier": "substring"}, "truthrl"),
    "rag-total": CASES["rag-total"],
    "ground-grpo, citation.judge_by=gold": CASES["ground-grpo, citation.judge_by=gold"],
}
"""The same for the hardened profile, whose rewards are not those of version 0.1.0."""


@dataclass(frozen=True)
class Comparison:
    """One measurement of both versions.

    ratios  seconds of version 0.1.0 divided by seconds of this version, for each alternation
    """

    name: str
    rows: int
    seconds: float
    ratios: tuple[float, ...]
    differences: str = ""

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def checkout(folder: Path) -> Path:
    """Return a checkout of version 0.1.0, which is made if it is missing.

    Raises SystemExit if git cannot make it, for example in a clone without the whole history.
    """
    path = folder / f"rag-rewards-{VERSION}"
    if not (path / "rag_rewards").is_dir():
        command = ["git", "worktree", "add", "--force", "--detach", str(path), COMMIT]
        try:
            subprocess.run(command, cwd=HERE, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = (getattr(error, "stderr", "") or str(error)).strip()
            raise SystemExit(
                f"version {VERSION}: git cannot check out commit {COMMIT} in {path} ({reason}): "
                "get the whole history with git fetch --unshallow, or name a checkout of this "
                "version with --old"
            ) from None
    return path.resolve()


def comparisons(old: Path) -> list[Comparison]:
    """Compare recipes in one process, the command with one worker, and its start-up."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            *_recipes(old, folder, CASES),
            *_recipes(old, folder, HARDENED, hardened=True),
            _command(old, folder),
            _start_up(old, folder),
        ]


Runs = list[tuple[Any, Any]]


def _alternate(old: Path, run: Callable[[Path], Any], times: int = ALTERNATIONS) -> Runs:
    """Return the results of both versions, of which each one runs first every second time."""
    runs = []
    for i in range(times):
        checkouts = [old, HERE.parent]
        results = {path: run(path) for path in (checkouts if i % 2 else reversed(checkouts))}
        runs.append((results[old], results[HERE.parent]))
    return runs


def _environment(checkout: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": ""}


# --- recipes ----------------------------------------------------------------------------------


def _recipes(
    old: Path,
    folder: Path,
    cases: dict[str, tuple[str, dict[str, Any], str]],
    *,
    hardened: bool = False,
) -> list[Comparison]:
    for name, (_, _, style) in cases.items():
        lines = rollouts.lean_lines(rollouts.rollouts(style, ROWS))
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(lines))
    timed = {name: (recipe, settings, hardened) for name, (recipe, settings, _) in cases.items()}
    (folder / "cases.json").write_text(json.dumps(timed), encoding="utf-8")
    with _timer(old, folder) as before, _timer(HERE.parent, folder) as now:
        timers = {old: before, HERE.parent: now}

        def alternate(name: str) -> Runs:
            return _alternate(old, lambda checkout: timers[checkout](name), PASSES)

        runs = {name: alternate(name) for name in cases}
    ending = "hardened" if hardened else "in process"
    return [
        _comparison(f"{name}, {ending}", ROWS, runs[name], is_equal=not hardened) for name in cases
    ]


@contextmanager
def _timer(checkout: Path, folder: Path) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Start a process with one version; yield a function that times one pass of a case."""
    command = [sys.executable, str(HERE / "time_recipes.py"), str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=_environment(checkout), stdin=pipe, stdout=pipe, text=True
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        version = json.loads(stdout.readline())
        assert (version == VERSION) == (checkout != HERE.parent), "the wrong version runs"

        def time(name: str) -> dict[str, Any]:
            print(name, file=stdin, flush=True)
            result: dict[str, Any] = json.loads(stdout.readline())
            return result

        yield time


def _comparison(name: str, rows: int, runs: Runs, *, is_equal: bool = True) -> Comparison:
    ratios = tuple(old["seconds"] / new["seconds"] for old, new in runs)
    seconds = min(new["seconds"] for _, new in runs)
    old, new = (each["values"] for each in runs[0])
    changes = differences(name, old, new) if is_equal else "other rules"
    return Comparison(name, rows, seconds, ratios, changes)


def differences(name: str, old: list[float | None], new: list[float | None]) -> str:
    """Return which rewards differ by rounding. SystemExit for a greater difference."""
    count, greatest = 0, 0.0
    for index, (before, after) in enumerate(zip(old, new, strict=True)):
        if before == after:
            continue
        size = math.inf if before is None or after is None else abs(before - after)
        if size > ROUNDING:
            raise SystemExit(f"{name}: row {index} has the rewards {before!r} and {after!r}")
        count, greatest = count + 1, max(greatest, size)
    return f"{count:,} rewards differ by up to {greatest:.0e}" if count else "equal rewards"


# --- the command line -------------------------------------------------------------------------


def _command(old: Path, folder: Path) -> Comparison:
    path = folder / "rows.jsonl"
    rollouts.write_jsonl(path, "naive-grpo", FILE_ROWS, FILE_BYTES, FILE_ROWS)
    runs = _alternate(old, lambda checkout: _score(checkout, path))
    return _comparison("command line, naive-grpo, 1.7 KB per row, 1 worker", FILE_ROWS, runs)


def _start_up(old: Path, folder: Path) -> Comparison:
    path = folder / "row.jsonl"
    rollouts.write_jsonl(path, "naive-grpo", 1, FILE_BYTES, 1)

    def fastest(checkout: Path) -> dict[str, Any]:
        return min((_score(checkout, path) for _ in range(3)), key=itemgetter("seconds"))

    return _comparison("command line, a file of one row", 1, _alternate(old, fastest))


def _score(checkout: Path, path: Path) -> dict[str, Any]:
    """Run `score` with one worker; return its processor seconds and the rewards."""
    out = path.with_suffix(".scored.jsonl")
    command = [sys.executable, "-m", "rag_rewards", "score", str(path), "-o", str(out)]
    command += ["--recipe", "naive-grpo", "--workers", "1"]
    spawn = [sys.executable, "-I", str(HERE / "spawn.py"), "500", *command]
    result = subprocess.run(
        spawn,
        env=_environment(checkout),
        cwd=path.parent,
        check=True,
        capture_output=True,
        text=True,
    )
    usage = json.loads(result.stdout)
    if usage["code"] != 0:
        raise SystemExit(f"{' '.join(command)} ended with {usage['code']}:\n{result.stderr}")
    with out.open("rb") as file:
        values = [json.loads(line)["reward"] for line in file]
    out.unlink()
    return {"seconds": usage["processor"], "values": values}
