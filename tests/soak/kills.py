"""Kill runs at random moments, resume them, and compare their output with that of unbroken runs.

    python tests/soak/kills.py [--kills 200] [--seed 0] [--only NAME ...] [--output FILE]

Each case runs a command with `--resume` and kills the command, one of its workers or, on Ray, one
node of the cluster with SIGKILL. It starts the command again until it completes. Then the output
must have the bytes of an unbroken run, with every row once. A new round starts without files.

With `--only`, the figures of all other cases and the text below the table stay in the output file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
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
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1]))
from prepare import row as hotpotqa_row
from ray_nodes import RayNodes, ray_nodes
from rollouts import encode, rollouts

COMMAND = [sys.executable, "-m", "rag_rewards"]
CODES = {0, 3}
"""Exit codes of complete runs: all rows are scored, or some are in error."""

WORKER_SECONDS = 4.0
"""Greatest time between the start of the workers on Ray and a kill of one of them."""
SLOW_REWARD = """
import time

def length(rollout):
    time.sleep(0.002)
    return float(len(rollout.response))
"""
"""A reward whose run lasts longer than the start of its workers."""


@dataclass(frozen=True)
class Case:
    """A command with an input. The names in its arguments, such as `{source}`, are replaced.

    workers   whether a kill may hit a process that scores for the command
    on_ray    whether the command uses a cluster, whose nodes a kill may hit, too
    extra     further outputs that must be equal, as suffixes of the output's name
    """

    name: str
    arguments: str
    source: str
    out: str = "out.jsonl"

    @property
    def workers(self) -> bool:
        return "--workers" in self.arguments

    @property
    def stdin(self) -> bool:
        return self.arguments.startswith("score - ")

    @property
    def on_ray(self) -> bool:
        return "--engine ray" in self.arguments

    @property
    def extra(self) -> tuple[str, ...]:
        outputs = {"score": (".errors.jsonl",), "prepare": (".card.md",)}
        return outputs.get(self.arguments.split()[0], ())

    def command(self, source: Path, out: Path, address: str, *, resume: bool) -> list[str]:
        names = {"source": source, "out": out, "folder": source.parent, "address": address}
        words = [word.format(**names) for word in self.arguments.split()]
        return [*COMMAND, *words, *(["--resume"] if resume else [])]


ARENA, CTRL_RAG = "score {source} -r arena -o {out}", "score {source} -r ctrl-rag -o {out}"
TWO = " --workers 2"
ON_RAY = " --engine ray --ray-address {address}"
CASES = (
    Case("one process", ARENA, "rows.jsonl"),
    Case("two workers", ARENA + TWO, "rows.jsonl"),
    Case("groups, two workers", CTRL_RAG + TWO, "groups.jsonl"),
    Case("gzip input, one reader", ARENA, "rows.jsonl.gz"),
    Case("gzip input, one reader, two workers", ARENA + TWO, "rows.jsonl.gz"),
    Case("standard input", "score - -r arena -o {out}", "rows.jsonl"),
    Case("gzip output", ARENA, "rows.jsonl", "out.jsonl.gz"),
    Case("Parquet output", ARENA, "rows.jsonl", "out.parquet"),
    Case("Zstandard output, two workers", ARENA + TWO, "rows.jsonl", "out.jsonl.zst"),
    Case("Parquet input and output, two workers", ARENA + TWO, "rows.parquet", "out.parquet"),
    Case("sorted groups", CTRL_RAG + " --sort", "mixed.jsonl"),
    Case("sorted groups, two workers", CTRL_RAG + " --sort" + TWO, "mixed.jsonl"),
    Case(
        "Ray, two workers",
        "score {source} -r {folder}/slow.py:length -o {out}" + TWO + ON_RAY,
        "rows.jsonl",
    ),
    Case("evaluate", "evaluate {source} -m em,f1,substring -o {out}", "valid.jsonl", "out.json"),
    Case("prepare", "prepare hotpotqa {source} -r arena -o {out}", "questions.json"),
)


@dataclass
class Result:
    """The counts of one case, in the order of the columns of the page."""

    rows: int = 0
    kills: int = 0
    worker_kills: int = 0
    node_kills: int = 0
    rounds: int = 0
    lost: int = 0
    doubled: int = 0
    different: int = 0
    failed: int = 0

    @property
    def all_kills(self) -> int:
        return self.kills + self.worker_kills + self.node_kills


HEADER = (
    "| case | rows | kills of the command | kills of a worker | kills of a node | rounds "
    "| lost rows | doubled rows | outputs with other bytes | runs that failed |"
)


def write_inputs(folder: Path, rows: int) -> None:
    """Write the inputs: rows of 8 KB with and without errors, groups of eight, and questions."""
    import gzip

    lines = [encode({"id": str(i), **row}) for i, row in enumerate(rollouts("arena", rows))]
    (folder / "valid.jsonl").write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in lines))
    for position in range(100, rows, 997):
        lines[position] = b'{"id": "%d", "response": 1}' % position
    data = b"".join(line.rstrip(b"\n") + b"\n" for line in lines)
    (folder / "rows.jsonl").write_bytes(data)
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(data, 1))
    groups = [
        encode({"id": str(i), **row}) for i, row in enumerate(rollouts("ctrl-rag", rows // 2))
    ]
    (folder / "groups.jsonl").write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in groups))
    random.Random(0).shuffle(groups)
    (folder / "mixed.jsonl").write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in groups))
    write_parquet(folder / "valid.jsonl", folder / "rows.parquet")
    (folder / "slow.py").write_text(SLOW_REWARD, "utf-8")
    rng = random.Random(0)
    questions = [hotpotqa_row(rng, number) for number in range(rows)]
    (folder / "questions.json").write_text(json.dumps(questions), "utf-8")


def write_parquet(source: Path, target: Path) -> None:
    """Write JSON lines as a Parquet file of several row groups."""
    from pyarrow import Table, parquet

    rows = [json.loads(line) for line in source.read_bytes().splitlines()]
    parquet.write_table(Table.from_pylist(rows), target, row_group_size=500)


@dataclass
class Runner:
    """The commands of one case, and the cluster that they use."""

    case: Case
    folder: Path
    rng: random.Random
    nodes: RayNodes | None

    @property
    def out(self) -> Path:
        case = self.case
        return self.folder / f"{case.name.replace(' ', '-').replace(',', '')}-{case.out}"

    @property
    def messages(self) -> str:
        return (self.folder / "messages").read_text().strip()

    def start(self, *, resume: bool) -> subprocess.Popen[bytes]:
        """Start the command. Its standard error is a file, so that no pipe fills up."""
        source = self.folder / self.case.source
        with (
            open(source if self.case.stdin else os.devnull, "rb") as stdin,
            open(self.folder / "messages", "wb") as messages,
        ):
            address = self.nodes.address if self.nodes else ""
            return subprocess.Popen(
                self.case.command(source, self.out, address, resume=resume),
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                env=self.nodes.environment if self.nodes else None,
            )

    def workers(self, process: subprocess.Popen[bytes]) -> list[int]:
        """Return the processes that score for the command."""
        if self.nodes:
            return [each.pid for each in self.nodes.workers("RayWorker")]
        return children(process.pid) if self.case.workers else []

    def wait_for_workers(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None and not self.workers(process):
            time.sleep(0.05)

    def kill_one(self, process: subprocess.Popen[bytes], duration: float, result: Result) -> None:
        """Kill the command or, in half of the kills, one of its workers or nodes.

        The moment is random within `duration` seconds, or after the workers on Ray have started.
        """
        is_command = self.rng.random() < 0.5
        if self.nodes and not is_command:
            self.wait_for_workers(process)  # most of the time passes before they begin
            duration = WORKER_SECONDS
        time.sleep(self.rng.uniform(0.1, duration))
        if process.poll() is not None:
            return
        if self.nodes and not is_command and self.rng.random() < 0.5:
            raylet = self.nodes.raylets.pop(self.rng.randrange(len(self.nodes.raylets)))
            os.kill(raylet, signal.SIGKILL)
            self.nodes.add()
            result.node_kills += 1
        elif not is_command and (workers := self.workers(process)):
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(self.rng.choice(workers), signal.SIGKILL)
                result.worker_kills += 1
        else:
            process.kill()
            result.kills += process.wait() == -signal.SIGKILL

    def files(self) -> list[bytes | None]:
        paths = [self.out, *(Path(f"{self.out}{suffix}") for suffix in self.case.extra)]
        return [path.read_bytes() if path.exists() else None for path in paths]


def children(process: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        texts = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in texts for child in text.split()]


def clear(out: Path) -> None:
    """Remove the output and all other files of its run."""
    for path in out.parent.glob(f"*{out.name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def run_case(runner: Runner, kills: int, rows: int, show: Callable[[str], None]) -> Result:
    """Kill one command until the number of kills is reached and the last round is complete."""
    name, result = runner.case.name, Result(rows)
    began = time.perf_counter()
    if runner.start(resume=False).wait() not in CODES:
        raise SystemExit(f"{name}: {runner.messages}")
    duration = time.perf_counter() - began
    expected = runner.files()
    clear(runner.out)
    while result.all_kills < kills:
        result.rounds += 1
        code = run_round(runner, kills, duration, result)
        if code in CODES:
            compare(runner.case, runner.files(), expected, result)
        else:
            result.failed += 1
            show(f"{name}: exit code {code}: {runner.messages}")
        clear(runner.out)
        show(f"{name}: {result.all_kills} kills, {result.rounds} rounds")
    return result


def run_round(runner: Runner, kills: int, duration: float, result: Result) -> int:
    """Start the command again until it ends by itself, and return its exit code."""
    while True:
        process = runner.start(resume=True)
        if result.all_kills < kills:
            runner.kill_one(process, duration, result)
        code = process.wait()
        if code != -signal.SIGKILL:
            return code


def compare(
    case: Case, outputs: list[bytes | None], expected: list[bytes | None], result: Result
) -> None:
    """Count the rows that are lost or doubled, and the outputs with other bytes."""
    if outputs == expected:
        return
    result.different += 1
    before, after = (Counter((files[0] or b"").split(b"\n")) for files in (expected, outputs))
    if not case.out.endswith(".jsonl"):
        return
    result.lost += (before - after).total()
    result.doubled += sum(count - 1 for line, count in after.items() if line and count > 1)


def opening(target: str, kills: int, rounds: int, seed: int) -> str:
    """Return the first sentence of a page: the work of a target of make, and the machine."""
    return (
        f"`make {target}`: {kills} kills with SIGKILL in {rounds} rounds, seed {seed}; "
        f"{platform.machine()}, {os.cpu_count()} cores that other\n"
        f"processes also used, Python {platform.python_version()}."
    )


def report(results: dict[str, Result], options: argparse.Namespace, notes: str) -> str:
    """Return the results as a page."""
    total = Result(max(each.rows for each in results.values()))
    for name in [each.name for each in fields(Result)][1:]:
        setattr(total, name, sum(getattr(each, name) for each in results.values()))
    lines = [
        "# Kills at random moments",
        "",
        opening("soak-kills", total.all_kills, total.rounds, options.seed)
        + " A round starts without files and is resumed until it is complete.",
        "Its outputs are then compared with those of an unbroken run.",
        "",
        HEADER,
        "|" + " --- |" * HEADER.count(" |"),
    ]
    for name, result in [*results.items(), ("**all**", total)]:
        cells = [getattr(result, each.name) for each in fields(Result)]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n" + notes


def earlier_results(page: Path) -> tuple[dict[str, Result], str]:
    """Return the figures of a page by case, and the text below its table."""
    text = page.read_text("utf-8") if page.exists() else ""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    names = {case.name for case in CASES}
    results = {row[0]: Result(*map(int, row[1:])) for row in rows if row and row[0] in names}
    return results, text.rpartition("|\n")[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[], help="run the cases with these names")
    parser.add_argument("--output", type=Path, help="write the results to this file")
    options = parser.parse_args()
    if unknown := set(options.only) - {case.name for case in CASES}:
        parser.error(f"no case has the name {', '.join(sorted(unknown))}")
    cases = [case for case in CASES if not options.only or case.name in options.only]
    earlier, notes = {}, ""
    if options.only and options.output:
        earlier, notes = earlier_results(options.output)
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        write_inputs(folder, options.rows)
        nodes = stack.enter_context(ray_nodes(2)) if any(c.on_ray for c in cases) else None
        for position, case in enumerate(cases):
            share = options.kills // len(cases) + (position < options.kills % len(cases))
            rng = random.Random(f"{options.seed} {case.name}")
            runner = Runner(case, folder, rng, nodes if case.on_ray else None)
            results[case.name] = run_case(
                runner, share, options.rows, lambda text: print(text, flush=True)
            )
    every = {c.name: (earlier | results)[c.name] for c in CASES if c.name in earlier | results}
    page = report(every, options, notes)
    print(page)
    if options.output:
        options.output.write_text(page, "utf-8")
    return int(any(each.different or each.failed for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
