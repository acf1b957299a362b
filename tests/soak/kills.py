"""Kill runs at random moments, resume them, and compare their output with that of unbroken runs.

    python tests/soak/kills.py [--kills 200] [--seed 0] [--only NAME] [--output FILE]

Each case runs a command with `--resume` and kills the command or one of its workers with SIGKILL.
It starts the command again until it completes. Then the output must have the bytes of an unbroken
run, with every row once. A new round starts without files.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from rollouts import encode, rollouts

COMMAND = [sys.executable, "-m", "rag_rewards"]
CODES = {0, 3}
"""Exit codes of complete runs: all rows are scored, or some are in error."""


@dataclass(frozen=True)
class Case:
    """A command with an input. `{source}`, `{out}` and `{folder}` are replaced in its arguments.

    workers   whether a kill may hit a process that the command started
    extra     further outputs that must be equal, as suffixes of the output's name
    """

    name: str
    arguments: str
    source: str
    out: str = "out.jsonl"
    workers: bool = False
    stdin: bool = False
    extra: tuple[str, ...] = ()

    def command(self, folder: Path, out: Path, *, resume: bool) -> list[str]:
        names = {"source": folder / self.source, "out": out, "folder": folder}
        words = [word.format(**names) for word in self.arguments.split()]
        return [*COMMAND, *words, *(["--resume"] if resume else [])]


ERRORS = (".errors.jsonl",)
CASES = (
    Case("one process", "score {source} -r arena -o {out}", "rows.jsonl", extra=ERRORS),
    Case(
        "two workers",
        "score {source} -r arena -o {out} --workers 2",
        "rows.jsonl",
        workers=True,
        extra=ERRORS,
    ),
    Case(
        "groups, two workers",
        "score {source} -r ctrl-rag -o {out} --workers 2",
        "groups.jsonl",
        workers=True,
        extra=ERRORS,
    ),
    Case(
        "gzip input, one reader", "score {source} -r arena -o {out}", "rows.jsonl.gz", extra=ERRORS
    ),
    Case(
        "gzip input, one reader, two workers",
        "score {source} -r arena -o {out} --workers 2",
        "rows.jsonl.gz",
        workers=True,
        extra=ERRORS,
    ),
    Case("standard input", "score - -r arena -o {out}", "rows.jsonl", stdin=True, extra=ERRORS),
    Case(
        "gzip output",
        "score {source} -r arena -o {out}",
        "rows.jsonl",
        "out.jsonl.gz",
        extra=ERRORS,
    ),
    Case(
        "Parquet output",
        "score {source} -r arena -o {out}",
        "rows.jsonl",
        "out.parquet",
        extra=ERRORS,
    ),
)


@dataclass
class Result:
    """The counts of one case."""

    kills: int = 0
    worker_kills: int = 0
    rounds: int = 0
    lost: int = 0
    doubled: int = 0
    different: int = 0
    failed: int = 0
    messages: Counter[str] = field(default_factory=Counter)


def write_inputs(folder: Path, rows: int) -> None:
    """Write the inputs: rows of 8 KB with some that are in error, and groups of eight."""
    import gzip

    lines = [encode({"id": str(i), **row}) for i, row in enumerate(rollouts("arena", rows))]
    for position in range(100, rows, 997):
        lines[position] = b'{"id": "%d", "response": 1}' % position
    data = b"".join(line.rstrip(b"\n") + b"\n" for line in lines)
    (folder / "rows.jsonl").write_bytes(data)
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(data, 1))
    groups = [
        encode({"id": str(i), **row}) for i, row in enumerate(rollouts("ctrl-rag", rows // 2))
    ]
    (folder / "groups.jsonl").write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in groups))


def start(case: Case, folder: Path, out: Path, *, resume: bool) -> subprocess.Popen[bytes]:
    """Start a command. Its standard error is a file, so that no pipe fills up."""
    with (
        open(folder / case.source if case.stdin else os.devnull, "rb") as stdin,
        open(folder / "messages", "wb") as messages,
    ):
        return subprocess.Popen(
            case.command(folder, out, resume=resume),
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=messages,
        )


def children(process: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        texts = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in texts for child in text.split()]


def files_of(case: Case, out: Path) -> list[bytes | None]:
    paths = [out, *(Path(f"{out}{suffix}") for suffix in case.extra)]
    return [path.read_bytes() if path.exists() else None for path in paths]


def clear(out: Path) -> None:
    """Remove the output and all other files of its run."""
    for path in out.parent.glob(f"*{out.name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def run_case(
    case: Case, folder: Path, kills: int, rng: random.Random, show: Callable[[str], None]
) -> Result:
    """Kill one command until the number of kills is reached and the last round is complete."""
    result = Result()
    out = folder / f"{case.name.replace(' ', '-').replace(',', '')}-{case.out}"
    began = time.perf_counter()
    code = start(case, folder, out, resume=False).wait()
    duration = time.perf_counter() - began
    if code not in CODES:
        raise SystemExit(f"{case.name}: {(folder / 'messages').read_text()}")
    expected = files_of(case, out)
    clear(out)
    while result.kills + result.worker_kills < kills:
        result.rounds += 1
        while True:
            process = start(case, folder, out, resume=True)
            is_last = result.kills + result.worker_kills >= kills
            if not is_last:
                time.sleep(rng.uniform(0.1, duration))
                if process.poll() is None:
                    kill_one(case, process, rng, result)
            code = process.wait()
            if code == -signal.SIGKILL:
                continue
            if code not in CODES:
                result.failed += 1
                message = (folder / "messages").read_text().strip()
                result.messages[message] += 1
                show(f"{case.name}: exit code {code}: {message}")
            break
        if code in CODES:
            compare(case, files_of(case, out), expected, result)
        clear(out)
        show(f"{case.name}: {result.kills + result.worker_kills} kills, {result.rounds} rounds")
    return result


def kill_one(
    case: Case, process: subprocess.Popen[bytes], rng: random.Random, result: Result
) -> None:
    """Kill the command or, in half of the cases with workers, one of its workers."""
    workers = children(process.pid) if case.workers else []
    if workers and rng.random() < 0.5:
        try:
            os.kill(rng.choice(workers), signal.SIGKILL)
            result.worker_kills += 1
        except ProcessLookupError:  # it ended by itself
            pass
    else:
        process.kill()
        result.kills += process.wait() == -signal.SIGKILL


def compare(
    case: Case, found: list[bytes | None], expected: list[bytes | None], result: Result
) -> None:
    """Count the rows that are lost or doubled, and the outputs with other bytes."""
    if found == expected:
        return
    result.different += 1
    before, after = (Counter((files[0] or b"").split(b"\n")) for files in (expected, found))
    if not case.out.endswith(".jsonl"):
        return
    result.lost += (before - after).total()
    result.doubled += sum(count - 1 for line, count in after.items() if line and count > 1)


def report(results: dict[str, Result], options: argparse.Namespace, seconds: float) -> str:
    """Return the results as a page."""
    kills = sum(result.kills + result.worker_kills for result in results.values())
    rounds = sum(result.rounds for result in results.values())
    lines = [
        "# Kills at random moments",
        "",
        f"`make soak-kills`: {kills} kills with SIGKILL in {rounds} rounds, {seconds / 60:.0f} "
        f"minutes, {options.rows:,} rows per input, seed {options.seed}; {platform.machine()}, "
        f"{os.cpu_count()} cores that other processes also used, Python "
        f"{platform.python_version()}. A round starts without files and is resumed until it is "
        "complete. Its outputs are then compared with those of an unbroken run.",
        "",
        "| case | kills of the command | kills of a worker | rounds | lost rows | doubled rows "
        "| outputs with other bytes | runs that failed |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, each in [*results.items(), ("**all**", _sum(results.values()))]:
        cells = (each.kills, each.worker_kills, each.rounds, each.lost, each.doubled)
        cells = (*cells, each.different, each.failed)
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _sum(results: Sequence[Result] | object) -> Result:
    total = Result()
    for each in results:  # type: ignore[attr-defined]
        for name in ("kills", "worker_kills", "rounds", "lost", "doubled", "different", "failed"):
            setattr(total, name, getattr(total, name) + getattr(each, name))
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="run the cases whose name contains this text")
    parser.add_argument("--output", help="write the results to this file")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.only or options.only in case.name]
    began = time.perf_counter()
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, options.rows)
        for position, case in enumerate(cases):
            share = options.kills // len(cases) + (position < options.kills % len(cases))
            rng = random.Random(f"{options.seed} {case.name}")
            results[case.name] = run_case(
                case, folder, share, rng, lambda text: print(text, flush=True)
            )
    page = report(results, options, time.perf_counter() - began)
    print(page)
    if options.output:
        Path(options.output).write_text(page, "utf-8")
    total = _sum(results.values())
    return int(bool(total.different or total.failed))


if __name__ == "__main__":
    sys.exit(main())
