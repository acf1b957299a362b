"""Compare outcome-only training with turn credit in the tiny search world.

    build/trainers/trl/bin/python benchmarks/search_agents.py             # runs, then the page
    build/trainers/trl/bin/python benchmarks/search_agents.py --page      # the page alone
    build/trainers/trl/bin/python benchmarks/search_agents.py --finished  # from the finished runs

A run is an arm with a seed. It has one thread, and its results are stored in build/search-agents/
as soon as it ends, so that an interrupted comparison continues where it stopped. The figures of a
complete comparison are in benchmarks/results/search_agents.json.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rag_rewards.tiny_world.search.arms import ARMS, Arm, arm

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
FOLDER = BUILD / "search-agents"
FILE = ROOT / "benchmarks" / "results" / "search_agents.json"
SEEDS = (0, 1, 2, 3, 4)
STEPS = {"noisy": 40, "rare": 60}
"""Steps of a training, for each kind of policy before the training."""
POINTS = 20
"""Measurements during a training."""
FRESH = 1_000
"""Questions on which the policy is measured at the end."""
GOAL = 0.8
"""Accuracy whose first step is measured."""
LEAST = 0.04
"""Smallest difference of two means of accuracies that counts."""
Points = Sequence[tuple[int, Mapping[str, float | None]]]


# --- one run -------------------------------------------------------------------------------------


def run(arm: Arm, kind: str, seed: int) -> dict[str, Any]:
    """Train an arm. Return its curve, its dead groups and the seconds."""
    import torch

    from rag_rewards.tiny_world.search.base import base
    from rag_rewards.tiny_world.search.episode import episodes
    from rag_rewards.tiny_world.search.measures import measure
    from rag_rewards.tiny_world.search.train import (
        SearchRun,
        dead_groups,
        search_curve,
        search_trainer,
    )

    torch.set_num_threads(1)
    steps = STEPS[kind]
    start = base(seed, BUILD / "tiny-world" / f"search-{kind}-{seed}", kind)
    began = time.perf_counter()
    curve = search_curve(steps // POINTS)
    trainer = search_trainer(
        SearchRun(arm, start, steps, seed), FOLDER / f"trainer-{kind}-{seed}", [curve]
    )
    trainer.train()
    seconds = time.perf_counter() - began
    fresh = episodes(FRESH, f"fresh {seed}")
    return {
        "arm": arm.name,
        "base": kind,
        "seed": seed,
        "steps": steps,
        "seconds": round(seconds, 1),
        "points": curve.points,
        "final": measure(trainer.model, trainer.processing_class, fresh, f"fresh {seed}"),
        "dead groups": dead_groups(trainer.state.log_history),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    names = ("torch", "transformers", "trl")
    return {name: version(name) for name in names} | {"Python": platform.python_version()}


def file_of(arm: Arm, kind: str, seed: int) -> Path:
    name = "-".join(arm.name.replace(",", "").split())
    return FOLDER / f"{kind}-{name}-{seed}.json"


def run_missing(kinds: Sequence[str], seeds: Sequence[int], before: Sequence[str]) -> None:
    """Run what has no stored result, one process per run, all arms of a seed after each other.

    before  words before the command of a run, such as a command that limits how many run at once
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    for kind, seed, each in product(kinds, seeds, ARMS):
        if not file_of(each, kind, seed).exists():
            one = [sys.executable, __file__, "--one", each.name, "--bases", kind]
            subprocess.run([*before, *one, "--seeds", str(seed)], check=True)


def run_one(name: str, kind: str, seed: int) -> None:
    """Run one arm and store its result."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = file_of(arm(name), kind, seed)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(run(arm(name), kind, seed)) + "\n", "utf-8")
    part.replace(file)
    print(f"{file.name}: {figures_text(file)}", flush=True)


def figures_text(file: Path) -> str:
    figures = figures_of(json.loads(file.read_text("utf-8")))
    return ", ".join(f"{name} {cell([value])}" for name, value in figures.items())


# --- figures -------------------------------------------------------------------------------------


def figures_of(result: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the figures of one run."""
    points = result["points"]
    accuracies = [(step, measures["right"] or 0.0) for step, measures in points]
    last = result["final"]
    return {
        "steps to .8": steps_to(accuracies, GOAL),
        "area": area(accuracies),
        "final": last["right"],
        "dead groups": fmean(result["dead groups"]),
        **{name: last[name] for name in ("first query", "second query", "turns")},
        "malformed turns": last["malformed turns"],
    }


def steps_to(accuracies: Sequence[tuple[int, float]], goal: float) -> float | None:
    """Return the step at which the accuracy reaches the goal, on lines between the points.

    >>> steps_to([(0, 0.1), (10, 0.7), (20, 0.9)], 0.8), steps_to([(0, 0.1)], 0.8)
    (15.0, None)
    """
    before = accuracies[0]
    for step, value in accuracies:
        if value >= goal:
            rise = value - before[1]
            share = (goal - before[1]) / rise if rise else 0.0
            return round(before[0] + share * (step - before[0]), 3)
        before = (step, value)
    return None


def area(accuracies: Sequence[tuple[int, float]]) -> float:
    """Return the mean accuracy over the steps, by trapezoids.

    >>> area([(0, 0.0), (10, 1.0), (20, 1.0)])
    0.75
    """
    pairs = pairwise(accuracies)
    total = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairs)
    return total / (accuracies[-1][0] - accuracies[0][0])


def differs(one: Sequence[float], other: Sequence[float], least: float) -> bool:
    """Return whether two means differ by more than two standard errors, and more than `least`.

    >>> differs([0.9, 0.8, 0.85], [0.2, 0.3, 0.25], 0.04), differs([0.9, 0.5], [0.6, 0.8], 0.04)
    (True, False)
    """
    error = math.sqrt(sum(stdev(each) ** 2 / len(each) for each in (one, other)))
    difference = abs(fmean(one) - fmean(other))
    return difference > 2 * error and difference > least


def cell(values: Sequence[float | None]) -> str:
    """Return mean ± standard deviation, and how many values there are if some are missing."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    digits = 1 if max(map(abs, known)) > 10 else 3
    text = f"{fmean(known):.{digits}f}"
    if len(known) > 1:
        text += f" ± {stdev(known):.{digits}f}"
    return text if len(known) == len(values) else f"{text} ({len(known)} of {len(values)})"


# --- the page ------------------------------------------------------------------------------------


def table(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return one row per arm: mean ± standard deviation over the seeds."""
    by_arm = {name: [figures_of(each) for each in results] for name, results in runs.items()}
    columns = list(next(iter(by_arm.values()))[0])
    lines = [f"| arm | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for name, figures in by_arm.items():
        cells = [cell([each[column] for each in figures]) for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def comparisons(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return one row per arm: its difference from outcome only, and whether it counts."""
    reference = [figures_of(each) for each in runs[ARMS[0].name]]
    lines = [
        "| arm | steps to .8 | area | final |",
        "| --- | --- | --- | --- |",
    ]
    for name, results in runs.items():
        if name == ARMS[0].name:
            continue
        figures = [figures_of(each) for each in results]
        cells = [
            difference(figures, reference, column, least)
            for column, least in (("steps to .8", 0.0), ("area", LEAST), ("final", LEAST))
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def difference(
    figures: Sequence[Mapping[str, Any]],
    reference: Sequence[Mapping[str, Any]],
    column: str,
    least: float,
) -> str:
    """Return the difference of two means, in bold if it counts, or why there is none."""
    one, other = ([each[column] for each in runs] for runs in (figures, reference))
    missing = [sum(value is None for value in values) for values in (one, other)]
    if any(missing):
        return f"not reached in {missing[0]} runs, and in {missing[1]} of {ARMS[0].name}"
    if min(len(one), len(other)) < 2:
        return "–"
    digits = 1 if column == "steps to .8" else 3
    text = f"{fmean(one) - fmean(other):+.{digits}f}"
    return f"**{text}**" if differs(one, other, least) else text


def page(stored: Mapping[str, Any]) -> str:
    """Return the stored results as a Markdown page."""
    runs = stored["runs"]
    results = [each for group in runs.values() for each in group]
    seconds = [each["seconds"] for each in results]
    names = ", ".join(f"{name} {number}" for name, number in stored["versions"].items())
    return TEXT.format(
        steps=results[0]["steps"],
        seeds=", ".join(str(each["seed"]) for each in next(iter(runs.values()))),
        versions=names,
        least=min(seconds),
        most=max(seconds),
        minutes=sum(seconds) / 60,
        table=table(runs),
        comparisons=comparisons(runs),
    )


TEXT = """\
# Turn credit in the tiny search world

`python benchmarks/search_agents.py` wrote this page. {steps} steps of GRPO with 16 questions × 8
rollouts; seeds: {seeds}. The policy is measured every 2 steps on 400 new questions, and at the end
on 1,000 others, sampled at temperature 1.
Versions: {versions}; one thread per run. A run took {least:.0f} to {most:.0f} s, and all runs
{minutes:.0f} minutes.

{table}

`steps to .8` is the step at which the accuracy reaches .8. `area` is the mean accuracy over the
training, and `final` the accuracy at its end. `dead groups` is the share of groups in which all
advantages are 0. `first query` is the share of first queries that are the person of the question,
and `second query` the share of second queries that are the friend of this person; these and the
following columns are measured at the end.

## Differences from outcome only

Bold: the means differ by more than two standard errors, and accuracies by more than .04.

{comparisons}

![Learning curves](search_agents.svg)
"""


def collect(seeds: Sequence[int], steps: int) -> dict[str, list[dict[str, Any]]]:
    """Return the finished runs of each arm."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for each in ARMS:
        files = [file_of(each, seed, steps) for seed in seeds]
        found = [json.loads(file.read_text("utf-8")) for file in files if file.exists()]
        if found:
            runs[each.name] = found
    return runs


def store(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write the figures that the page and the picture need, one run per line."""
    lines = []
    for name, results in runs.items():
        rows = ",\n".join(f"   {json.dumps(essential(each))}" for each in results)
        lines.append(f"  {json.dumps(name)}: [\n{rows}\n  ]")
    first = next(iter(runs.values()))[0]
    body = ",\n".join(lines)
    text = f'{{\n "versions": {json.dumps(first["versions"])},\n "runs": {{\n{body}\n }}\n}}\n'
    FILE.write_text(text, "utf-8")


def essential(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run with rounded values."""
    points = [[step, rounded(measures)] for step, measures in result["points"]]
    dead = [round(value, 4) for value in result["dead groups"]]
    kept = {name: result[name] for name in ("seed", "steps", "seconds")}
    return {**kept, "final": rounded(result["final"]), "points": points, "dead groups": dead}


def rounded(measures: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 4) for name, value in measures.items()}


def picture(runs: Mapping[str, Sequence[Mapping[str, Any]]], file: Path) -> None:
    """Draw the accuracy and the share of right second queries of all arms."""
    from rag_rewards.tiny_world.learning_curve import draw

    panels = {
        "right answers": "right",
        "second query names the friend": "second query",
    }
    lines = {
        title: {
            name: [[(s, m[measure] or 0.0) for s, m in each["points"]] for each in results]
            for name, results in runs.items()
        }
        for title, measure in panels.items()
    }
    draw(lines, file, "Turn credit in the tiny search world")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--bases", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--one", metavar="ARM", help="run this arm with the first seed, and stop")
    parser.add_argument("--before", nargs="+", default=[], help="words before each run's command")
    parser.add_argument("--page", action="store_true", help="write the page from stored figures")
    parser.add_argument(
        "--finished",
        action="store_true",
        help="write the page from finished runs",
    )
    options = parser.parse_args()
    if options.one:
        run_one(options.one, options.bases[0], options.seeds[0])
        return 0
    if not (options.page or options.finished):
        run_missing(options.bases, options.seeds, options.before)
    if not options.page:
        store(collect(options.seeds, options.steps))
    stored = json.loads(FILE.read_text("utf-8"))
    text = page(stored)
    FILE.with_suffix(".md").write_text(text, "utf-8")
    picture(stored["runs"], FILE.with_suffix(".svg"))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
