"""How fast the rules are: one table, from one run, of everything that needs no model.

    python benchmarks/rules.py            # minutes
    python benchmarks/rules.py --full     # also the peak memory of 1,000,000 rows

Compared are verl's released exact-match rule, a textbook scorer (textbook.py), and this package,
on the same rows, with the same values: the run ends with an error where a value differs. Library
figures are of one core; every timed pass has rollouts on which nothing is cached.
"""

import argparse
import gc
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import released
import rollouts
import textbook

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / "build" / "bench"
RESULT = HERE / "results" / "rules.md"

ROWS = 20_000
BATCH = 512
MANY_ROWS = 1_000_000
RECIPES: dict[str, tuple[dict[str, Any], float | None]] = {
    "naive-grpo": ({}, None),
    "arena": ({}, 50_000),
    "truthrl": ({"verifier": "exact"}, 80_000),
    "ctrl-rag": ({}, 25_000),
    "lear": ({}, 40_000),
    "ground-grpo": ({"citation.judge_by": "gold"}, 5_000),
}


@dataclass(frozen=True)
class Size:
    """One size of row for the command line, with its targets."""

    name: str
    style: str
    size: int
    rows: int
    rate: float
    scaling: float


SIZES = (
    Size("1.7 KB", "naive-grpo", 1_700, 200_000, 30_000, 1.6),
    Size("8 KB", "arena", 8_192, 80_000, 20_000, 1.3),
)


# --- timing -----------------------------------------------------------------------------------


@dataclass
class Case:
    """Something to time, batch after batch; `setup` makes a batch anew and is not timed.

    Timed is the processor's time: nothing here waits, and a busy neighbour must not count.
    Batches are of the size that the command line scores at a time.
    """

    rows: list[Any]
    setup: Callable[[list[Any]], Any]
    run: Callable[[Any], list[Any]]
    seconds: float = math.inf
    result: list[Any] = field(default_factory=list)

    def once(self) -> None:
        self.result = []
        seconds = 0.0
        gc.collect()
        for at in range(0, len(self.rows), BATCH):
            data = self.setup(self.rows[at : at + BATCH])
            start = time.process_time()
            scored = self.run(data)
            seconds += time.process_time() - start
            self.result.extend(scored)
        self.seconds = min(self.seconds, seconds)


def race(cases: dict[str, Case], repeat: int) -> dict[str, Case]:
    """The best of several passes, taken in turns so that a busy moment hits all alike.

    The collector runs as ever, over what is made in the passes; not over the rows themselves.
    """
    gc.collect()
    gc.freeze()
    for _ in range(repeat):
        for case in cases.values():
            case.once()
    gc.unfreeze()
    return cases


@contextmanager
def one_core() -> Iterator[None]:
    """Stay on one core, where the system lets a process choose."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# --- the table --------------------------------------------------------------------------------


@dataclass
class Table:
    lines: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, what: str, rows: int, seconds: float | None, result: str, **aim: float) -> None:
        """One line; `aim` is `target=`, `at_most=` or nothing, with the `value` it is held to."""
        value = aim.get("value", math.nan)
        target, met = "", ""
        if "target" in aim:
            target, met = f"≥ {aim['target']:,g}", "yes" if value >= aim["target"] else "NO"
        if "at_most" in aim:
            target, met = f"≤ {aim['at_most']:,g}", "yes" if value <= aim["at_most"] else "NO"
        took = "" if seconds is None else f"{seconds:.3f}"
        self.lines.append((what, f"{rows:,}", took, result, target, met))
        print(f"  {what}: {result} {target} {met}", file=sys.stderr, flush=True)

    def rate(self, what: str, rows: int, seconds: float, target: float | None = None) -> None:
        aim = {} if target is None else {"target": target, "value": rows / seconds}
        self.add(what, rows, seconds, f"{rows / seconds:,.0f} rows/s", **aim)

    def ratio(self, what: str, rows: int, value: float, target: float) -> None:
        self.add(what, rows, None, f"{value:.2f} ×", value=value, target=target)

    def markdown(self) -> str:
        head = ("measured", "rows", "seconds", "result", "target", "met")
        ruler = ("---", "---:", "---:", "---:", "---:", "---")
        return "\n".join(f"| {' | '.join(line)} |" for line in (head, ruler, *self.lines))


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine(versions: dict[str, str]) -> str:
    packages = "".join(f"{name} {number}, " for name, number in versions.items())
    return (
        f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"load {os.getloadavg()[0]:.1f} at the start. "
        f"{platform.python_implementation()} {platform.python_version()}; {packages}"
        f"verl {released.VERSION} (its rule file alone)."
    )


# --- exact match, substring, F1 ---------------------------------------------------------------


def same(ours: list[float], theirs: list[float], what: str) -> int:
    """How many values were compared; an error names the first row that differs."""
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine != other:
            raise SystemExit(f"{what}: row {index} has {mine!r} against {other!r}")
    return len(ours)


def baselines(rows: list[rollouts.Row]) -> dict[str, Case]:
    rule = released.compute_score(CACHE)
    truths = [(row["response"], {"target": row["answers"]}) for row in rows]
    pairs = [(row["response"], row["answers"]) for row in rows]
    return {
        "verl": Case(truths, list, lambda data: released.score_all(rule, data)),
        "textbook": Case(pairs, list, lambda data: [textbook.score(*pair) for pair in data]),
    }


def contenders(rows: list[rollouts.Row]) -> dict[str, Case]:
    import ours

    lines = rollouts.lean_lines(iter(rows))
    return {
        "ours three": Case(lines, ours.fresh, partial(ours.match, metrics=tuple(ours.METRICS))),
        "ours exact": Case(lines, ours.fresh, partial(ours.match, metrics=("exact",))),
    }


def compare(cases: dict[str, Case]) -> None:
    """Values of all who are there; they must be identical on every row."""
    texts = {name: [row[name] for row in cases["textbook"].result] for name in textbook.METRICS}
    verl = cases["verl"].result
    count = same(verl, texts["exact"], "verl and the textbook, exact")
    if "ours three" in cases:
        import ours

        three = cases["ours three"].result
        exact = ours.values([scores[0] for scores in cases["ours exact"].result])
        count += same(exact, verl, "ours and verl, exact")
        for at, (name, expected) in enumerate(texts.items()):
            mine = ours.values([scores[at] for scores in three])
            count += same(mine, expected, f"ours and the textbook, {name}")
    print(f"  {count:,} values compared, all identical", file=sys.stderr)


def match_metrics(table: Table, repeat: int, with_ours: bool) -> None:
    rows = list(rollouts.rollouts("naive-grpo", ROWS))
    with one_core():
        cases = baselines(rows) | (contenders(rows) if with_ours else {})
        race(cases, repeat)
    compare(cases)
    took = {name: case.seconds for name, case in cases.items()}
    table.rate("(a) verl's released rule: exact match", ROWS, took["verl"])
    table.rate("(b) textbook: exact, substring, F1", ROWS, took["textbook"])
    if not with_ours:
        return
    table.rate("(c) ours: exact, substring, F1", ROWS, took["ours three"])
    table.rate("(c) ours: exact match", ROWS, took["ours exact"])
    table.ratio("(c) against (b), three metrics", ROWS, took["textbook"] / took["ours three"], 6)
    table.ratio("(c) against (a), exact match", ROWS, took["verl"] / took["ours exact"], 1.8)


# --- recipes ----------------------------------------------------------------------------------


def recipes(table: Table, repeat: int) -> None:
    import ours

    for name, (settings, target) in RECIPES.items():
        lines = rollouts.lean_lines(rollouts.rollouts(name, ROWS))
        recipe = ours.recipe(name, settings)
        case = Case(lines, ours.fresh, recipe)
        with one_core():
            race({name: case}, repeat)
        values = ours.values(case.result)
        assert len(set(values)) > 1, f"{name}: every row has the same reward"
        shown = ", ".join(f"{key}={value}" for key, value in settings.items())
        mean = f"mean reward {statistics.fmean(values):.3f}"
        what = f"(d) {name}" + (f", {shown}" if shown else "") + f" ({mean})"
        table.rate(what, ROWS, case.seconds, target)


# --- the command line -------------------------------------------------------------------------


@dataclass(frozen=True)
class Child:
    seconds: float
    processor: float
    peak: int

    @property
    def cores(self) -> str:
        """How many cores it kept busy: below its workers, it waited or had busy neighbours."""
        return f", {self.processor / self.seconds:.1f} cores busy"


def score_file(path: Path, recipe: str, workers: int) -> Child:
    """`rag-rewards score` in a process of its own; its output must be complete."""
    out = path.with_suffix(".scored.jsonl")
    tool = Path(sys.executable).with_name("rag-rewards")
    command = [sys.executable, "-I", str(tool), "score", str(path), "-o", str(out)]
    command += ["--recipe", recipe, "--workers", str(workers), "--no-progress"]
    spawn = [sys.executable, "-I", str(HERE / "spawn.py"), "500", *command]
    said = subprocess.run(spawn, check=True, timeout=520, capture_output=True, text=True)
    seen = json.loads(said.stdout)
    if seen["code"] != 0:
        raise SystemExit(f"{' '.join(command[2:])} ended with {seen['code']}:\n{said.stderr}")
    assert count_lines(out) == count_lines(path), "the output misses rows"
    out.unlink()
    return Child(seen["seconds"], seen["processor"], seen["peak"])


def count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


@contextmanager
def rows_file(size: Size, count: int) -> Iterator[Path]:
    """A file of rows in a folder of its own, so that two runs at once do not meet."""
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        path = Path(folder) / "rows.jsonl"
        written = rollouts.write_jsonl(path, size.style, count, size.size, ROWS)
        assert 0.9 < written / count / size.size < 1.1, f"rows of {written / count:.0f} bytes"
        yield path


def throughput(table: Table, size: Size, repeat: int) -> None:
    """Wall clock of the whole command, start-up included, with one worker and with two."""
    ones, twos = [], []
    with rows_file(size, size.rows) as path:
        for _ in range(repeat):
            ones.append(score_file(path, size.style, 1))
            twos.append(score_file(path, size.style, 2))
    one, two = (min(runs, key=lambda run: run.seconds) for runs in (ones, twos))
    name = f"(e) command line, {size.style}, {size.name} a row"
    table.rate(f"{name}, 1 worker{one.cores}", size.rows, one.seconds, size.rate)
    table.rate(f"{name}, 2 workers{two.cores}", size.rows, two.seconds)
    ratio = one.seconds / two.seconds
    table.ratio(f"{name}, 2 workers against 1", size.rows, ratio, size.scaling)


def start_up(table: Table, repeat: int) -> None:
    """What the command costs before its first row."""
    with rows_file(SIZES[0], 1) as path:
        seconds = min(score_file(path, SIZES[0].style, 1).seconds for _ in range(repeat))
    table.add("(e) command line, a file of one row", 1, seconds, f"{seconds * 1000:,.0f} ms")


def peak_memory(table: Table, full: bool) -> None:
    size = SIZES[0]
    name = f"(e) command line, {size.name} a row, peak memory"
    few = peak_of(table, name, size, ROWS)
    if full:
        many = peak_of(table, name, size, MANY_ROWS)
        label = f"{name}, against {ROWS:,} rows"
        table.add(label, MANY_ROWS, None, f"{many / few:.2f} ×", value=many / few, at_most=1.3)


def peak_of(table: Table, name: str, size: Size, count: int) -> int:
    with rows_file(size, count) as path:
        child = score_file(path, size.style, 1)
    table.add(name, count, child.seconds, f"{child.peak / 2**20:,.0f} MiB")
    return child.peak


# --- one run ----------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> str:
    table = Table()
    with_ours = not options.baselines
    versions = {}
    if with_ours:
        import ours

        versions = ours.versions()
    about = machine(versions)
    match_metrics(table, options.repeat, with_ours)
    if with_ours:
        recipes(table, options.repeat)
        start_up(table, 3)
        for size in SIZES:
            throughput(table, size, 3)
        peak_memory(table, options.full)
    return f"# The rules, measured\n\n{about}\n\n{table.markdown()}\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="also 1,000,000 rows")
    parser.add_argument("--repeat", type=int, default=5, help="passes of the library figures")
    parser.add_argument("--baselines", action="store_true", help="verl and the textbook alone")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    CACHE.mkdir(parents=True, exist_ok=True)
    page = measure(options)
    print(page)
    if not options.baselines:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
