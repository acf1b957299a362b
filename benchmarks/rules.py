"""Measure the speed of everything that needs no model, and print one table.

    python benchmarks/rules.py            # some minutes
    python benchmarks/rules.py --full     # also the peak memory of 1,000,000 rows
    python benchmarks/rules.py --strict   # exit code 1 if a target is missed

The script compares the released exact-match rule of verl, a simple scorer (textbook.py) and this
package on the same rows, and this version with version 0.1.0 (old_version.py). The run ends with an
error if a value differs. The figures of the library use one core. Each timed pass has new rollouts
without cached results.
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

import old_version
import released
import rollouts
import textbook
from harness import ratio

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / "build" / "bench"
RESULT = HERE / "results" / "rules.md"

ROWS = 20_000
BATCH = 512
MANY_ROWS = 1_000_000
RECIPES: dict[str, dict[str, Any]] = {
    "naive-grpo": {},
    "arena": {},
    "truthrl": {"verifier": "exact"},
    "ctrl-rag": {},
    "lear": {},
    "ground-grpo": {"citation.judge_by": "gold"},
}


@dataclass(frozen=True)
class Size:
    """One size of row for the command line."""

    name: str
    style: str
    size: int
    rows: int


SIZES = (
    Size("1.7 KB", "naive-grpo", 1_700, 200_000),
    Size("8 KB", "arena", 8_192, 80_000),
)


# --- timing -----------------------------------------------------------------------------------


@dataclass
class Case:
    """A function to time on batches of rows. `setup` creates each batch and is not timed.

    The time is processor time, because no case waits and other processes must not count. The
    batches have the size that the command line uses.
    """

    rows: list[Any]
    setup: Callable[[list[Any]], Any]
    run: Callable[[Any], list[Any]]
    passes: list[float] = field(default_factory=list)
    result: list[Any] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The time of the fastest pass."""
        return min(self.passes)

    def run_once(self) -> None:
        self.result = []
        seconds = 0.0
        gc.collect()
        for position in range(0, len(self.rows), BATCH):
            data = self.setup(self.rows[position : position + BATCH])
            start = time.process_time()
            values = self.run(data)
            seconds += time.process_time() - start
            self.result.extend(values)
        self.passes.append(seconds)


def run_alternating(cases: dict[str, Case], repeat: int) -> dict[str, Case]:
    """Time several passes of each case, in alternation, so that other load affects all equally.

    The garbage collector runs as usual, but `gc.freeze` excludes the rows themselves.
    """
    gc.collect()
    gc.freeze()
    for _ in range(repeat):
        for case in cases.values():
            case.run_once()
    gc.unfreeze()
    return cases


@contextmanager
def one_core() -> Iterator[None]:
    """Use only one core, on systems where a process can select its cores."""
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

    def add(self, name: str, rows: int, seconds: float | None, result: str, **aim: float) -> None:
        """Add a line. `aim` contains `value` and a limit: `target` (minimum) or `at_most`."""
        value = aim.get("value", math.nan)
        target, met = "", ""
        if "target" in aim:
            target, met = f"≥ {aim['target']:,g}", "yes" if value >= aim["target"] else "no"
        if "at_most" in aim:
            target, met = f"≤ {aim['at_most']:,g}", "yes" if value <= aim["at_most"] else "no"
        duration = "" if seconds is None else f"{seconds:.3f}"
        self.lines.append((name, f"{rows:,}", duration, result, target, met))
        print(f"  {name}: {result} {target} {met}", file=sys.stderr, flush=True)

    def rate(self, name: str, rows: int, seconds: float) -> None:
        self.add(name, rows, seconds, f"{rows / seconds:,.0f} rows/s")

    def ratio(self, name: str, rows: int, value: float, target: float | None = None) -> None:
        aim = {} if target is None else {"value": value, "target": target}
        self.add(name, rows, None, f"{value:.2f} ×", **aim)

    @property
    def missed(self) -> list[str]:
        """The names of the lines whose target is missed."""
        return [line[0] for line in self.lines if line[-1] == "no"]

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
        f"verl {released.VERSION} (only its rule file)."
    )


# --- exact match, substring, F1 ---------------------------------------------------------------


def check_equal(values: list[float], others: list[float], name: str) -> int:
    """Return the number of compared values. SystemExit for the first row that differs."""
    for index, (value, other) in enumerate(zip(values, others, strict=True)):
        if value != other:
            raise SystemExit(f"{name}: row {index} has the values {value!r} and {other!r}")
    return len(values)


def baselines(rows: list[rollouts.Row]) -> dict[str, Case]:
    rule = released.compute_score(CACHE)
    truths = [(row["response"], {"target": row["answers"]}) for row in rows]
    pairs = [(row["response"], row["answers"]) for row in rows]
    return {
        "verl": Case(truths, list, lambda data: released.score_all(rule, data)),
        "textbook": Case(pairs, list, lambda data: [textbook.score(*pair) for pair in data]),
    }


def own_cases(rows: list[rollouts.Row]) -> dict[str, Case]:
    import ours

    lines = rollouts.lean_lines(iter(rows))
    return {
        "rag-rewards, three metrics": Case(
            lines, ours.fresh, partial(ours.match, metrics=tuple(ours.METRICS))
        ),
        "rag-rewards, exact": Case(lines, ours.fresh, partial(ours.match, metrics=("exact",))),
    }


def compare(cases: dict[str, Case]) -> None:
    """Check that all cases have identical values on every row."""
    texts = {name: [row[name] for row in cases["textbook"].result] for name in textbook.METRICS}
    verl = cases["verl"].result
    count = check_equal(verl, texts["exact"], "verl and the textbook, exact")
    if "rag-rewards, three metrics" in cases:
        import ours

        three = cases["rag-rewards, three metrics"].result
        exact = ours.values([scores[0] for scores in cases["rag-rewards, exact"].result])
        count += check_equal(exact, verl, "rag-rewards and verl, exact")
        for position, (name, expected) in enumerate(texts.items()):
            values = ours.values([scores[position] for scores in three])
            count += check_equal(values, expected, f"rag-rewards and the textbook, {name}")
    print(f"  {count:,} values compared, all identical", file=sys.stderr)


def match_metrics(table: Table, repeat: int, with_ours: bool) -> None:
    rows = list(rollouts.rollouts("naive-grpo", ROWS))
    with one_core():
        cases = baselines(rows) | (own_cases(rows) if with_ours else {})
        run_alternating(cases, repeat)
    compare(cases)
    verl, textbook = cases["verl"], cases["textbook"]
    table.rate("(a) verl, released rule: exact match", ROWS, verl.seconds)
    table.rate("(b) textbook: exact, substring, F1", ROWS, textbook.seconds)
    if not with_ours:
        return
    three, exact = (cases[f"rag-rewards, {name}"] for name in ("three metrics", "exact"))
    table.rate("(c) rag-rewards: exact, substring, F1", ROWS, three.seconds)
    table.rate("(d) rag-rewards: exact match", ROWS, exact.seconds)
    table.ratio("speed of (c) relative to (b)", ROWS, ratio(textbook.passes, three.passes), 6)
    table.ratio("speed of (d) relative to (a)", ROWS, ratio(verl.passes, exact.passes), 1.8)


def decisions(table: Table, repeat: int) -> None:
    """Compare the decision on the answer of a section with exact match."""
    import ours

    lines = rollouts.lean_lines(rollouts.rollouts("naive-grpo", ROWS))
    cases = {name: Case(lines, ours.fresh, match) for name, match in ours.DECISIONS.items()}
    with one_core():
        run_alternating(cases, repeat)
    exact, decided = cases["exact"].passes, cases["decided"].passes
    table.rate("(e) rag-rewards: decision on the answer", ROWS, min(decided))
    name = "speed of (e) relative to exact match in the same run"
    table.ratio(name, ROWS, ratio(exact, decided), 0.4)


# --- recipes ----------------------------------------------------------------------------------


def recipes(table: Table, repeat: int) -> None:
    import ours

    for name, settings in RECIPES.items():
        lines = rollouts.lean_lines(rollouts.rollouts(name, ROWS))
        recipe = ours.recipe(name, settings)
        case = Case(lines, ours.fresh, recipe)
        with one_core():
            run_alternating({name: case}, repeat)
        values = ours.values(case.result)
        assert len(set(values)) > 1, f"{name}: every row has the same reward"
        changes = "".join(f", {key}={value}" for key, value in settings.items())
        mean = f"mean reward {statistics.fmean(values):.3f}"
        table.rate(f"recipe {name}{changes} ({mean})", ROWS, case.seconds)


# --- the command line -------------------------------------------------------------------------


@dataclass(frozen=True)
class Child:
    seconds: float
    processor: float
    peak: int

    @property
    def cores(self) -> str:
        """The number of busy cores. It is below the number of workers if the command waited."""
        return f", {self.processor / self.seconds:.1f} cores busy"


def score_file(path: Path, recipe: str, workers: int) -> Child:
    """Run `rag-rewards score` in another process and check that its output is complete."""
    out = path.with_suffix(".scored.jsonl")
    tool = Path(sys.executable).with_name("rag-rewards")
    command = [sys.executable, "-I", str(tool), "score", str(path), "-o", str(out)]
    command += ["--recipe", recipe, "--workers", str(workers)]
    spawn = [sys.executable, "-I", str(HERE / "spawn.py"), "500", *command]
    result = subprocess.run(spawn, check=True, timeout=520, capture_output=True, text=True)
    usage = json.loads(result.stdout)
    if usage["code"] != 0:
        raise SystemExit(f"{' '.join(command[2:])} ended with {usage['code']}:\n{result.stderr}")
    assert count_lines(out) == count_lines(path), "the output misses rows"
    out.unlink()
    return Child(usage["seconds"], usage["processor"], usage["peak"])


def count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


@contextmanager
def rows_file(size: Size, count: int) -> Iterator[Path]:
    """Create a file of rows in a new folder, so that parallel runs do not share files."""
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        path = Path(folder) / "rows.jsonl"
        mean = rollouts.write_jsonl(path, size.style, count, size.size, ROWS) / count
        assert 0.9 < mean / size.size < 1.1, f"rows of {mean:.0f} bytes"
        yield path


def throughput(table: Table, size: Size, repeat: int) -> None:
    """Measure the elapsed time of the whole command with its start-up, with 1 and 2 workers."""
    ones, twos = [], []
    with rows_file(size, size.rows) as path:
        for _ in range(repeat):
            ones.append(score_file(path, size.style, 1))
            twos.append(score_file(path, size.style, 2))
    one, two = (min(runs, key=lambda run: run.seconds) for runs in (ones, twos))
    name = f"command line, {size.style}, {size.name} per row"
    table.rate(f"{name}, 1 worker{one.cores}", size.rows, one.seconds)
    table.rate(f"{name}, 2 workers{two.cores}", size.rows, two.seconds)
    gain = one.seconds / two.seconds
    table.ratio(f"{name}, speed of 2 workers relative to 1", size.rows, gain)


def start_up(table: Table, repeat: int) -> None:
    """Measure the start-up of the command with a file of one row."""
    with rows_file(SIZES[0], 1) as path:
        seconds = min(score_file(path, SIZES[0].style, 1).seconds for _ in range(repeat))
    table.add("command line, a file of one row", 1, seconds, f"{seconds * 1000:,.0f} ms")


def peak_memory(table: Table, full: bool) -> None:
    size = SIZES[0]
    name = f"command line, {size.name} per row, peak memory"
    few = peak_of(table, name, size, ROWS)
    if full:
        many = peak_of(table, name, size, MANY_ROWS)
        label = f"{name} relative to {ROWS:,} rows"
        table.add(label, MANY_ROWS, None, f"{many / few:.2f} ×", value=many / few, at_most=1.3)


def peak_of(table: Table, name: str, size: Size, count: int) -> int:
    with rows_file(size, count) as path:
        child = score_file(path, size.style, 1)
    table.add(name, count, child.seconds, f"{child.peak / 2**20:,.0f} MiB")
    return child.peak


# --- version 0.1.0 ----------------------------------------------------------------------------


def older_version(table: Table, checkout: Path | None) -> None:
    for each in old_version.comparisons(checkout or old_version.checkout(CACHE)):
        name = f"{each.name}: speed relative to {old_version.VERSION} ({each.differences})"
        table.ratio(name, each.rows, each.ratio, old_version.TARGET)


# --- one run ----------------------------------------------------------------------------------


def introduction() -> str:
    """Return what was measured and how, for the beginning of the page."""
    return (
        "`python benchmarks/rules.py` writes this page. It measures everything that needs no "
        f"model, on rows that it creates from a seed: groups of {rollouts.GROUP} responses of "
        "about 140 words to one question. The rates of the library are processor times on one "
        "core, the best of several passes, without the decoding of rows; the ratios of these rates "
        "are medians of the passes, which alternate. A speed relative to "
        f"version {old_version.VERSION} is a median: both versions, each in a process of its own, "
        f"take turns on the same rows, {old_version.PASSES} times for a recipe and "
        f"{old_version.ALTERNATIONS} times for a command, and the processor time of the old "
        "version is divided by that of this version. Both versions give "
        "the same rewards, apart from rounding errors of sums. Other figures of the command line "
        "are the elapsed time of the whole command, the best of three. The column `met` states "
        "whether the result meets the target."
    )


def measure(options: argparse.Namespace, table: Table) -> str:
    with_ours = not options.baselines
    versions = {}
    if with_ours:
        import ours

        versions = ours.versions()
    description = machine(versions)
    match_metrics(table, options.repeat, with_ours)
    if with_ours:
        decisions(table, options.repeat)
        older_version(table, options.old)
        recipes(table, options.repeat)
        start_up(table, 3)
        for size in SIZES:
            throughput(table, size, 3)
        peak_memory(table, options.full)
    return f"# Speed of rules\n\n{introduction()}\n\n{description}\n\n{table.markdown()}\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="also use 1,000,000 rows")
    parser.add_argument("--repeat", type=int, default=5, help="passes of the library")
    parser.add_argument(
        "--old", type=Path, help="use this checkout of version 0.1.0 (default: make one)"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--baselines", action="store_true", help="only verl and the textbook")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    CACHE.mkdir(parents=True, exist_ok=True)
    table = Table()
    page = measure(options, table)
    print(page)
    if not options.baselines:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(page, encoding="utf-8")
    if options.strict and table.missed:
        sys.exit(f"missed targets: {'; '.join(table.missed)}")


if __name__ == "__main__":
    main()
