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

from tiny_search.arms import ARMS, Arm, arm

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
FOLDER = BUILD / "search-agents"
FILE = ROOT / "benchmarks" / "results" / "search_agents.json"
SEEDS = (0, 1, 2, 3, 4)
STEPS = {"noisy": 40, "guessing": 60}
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
    from tiny_search.base import base
    from tiny_search.episode import episodes
    from tiny_search.measures import measure
    from tiny_search.train import (
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


def mean_and_error(differences: Sequence[float]) -> tuple[float, float]:
    """Return the mean of differences and its standard error.

    >>> mean_and_error([1.0, 2.0, 3.0])
    (2.0, 0.5773502691896258)
    """
    return fmean(differences), stdev(differences) / math.sqrt(len(differences))


def counts(differences: Sequence[float], least: float) -> bool:
    """Return whether a mean is more than two standard errors from 0, and more than `least`.

    >>> counts([0.1, 0.1, 0.13], 0.04), counts([0.1, -0.1, 0.13], 0.04), counts([0.01, 0.01], 0.04)
    (True, False, False)
    """
    mean, error = mean_and_error(differences)
    return abs(mean) > 2 * error and abs(mean) > least


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

Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""The results of each arm, in the order of the seeds."""


def table(runs: Runs) -> str:
    """Return one row per arm: mean ± standard deviation over the seeds."""
    by_arm = {name: [figures_of(each) for each in results] for name, results in runs.items()}
    columns = list(next(iter(by_arm.values()))[0])
    lines = [f"| arm | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for name, figures in by_arm.items():
        cells = [cell([each[column] for each in figures]) for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def comparisons(runs: Runs) -> str:
    """Return one row per arm: its differences from outcome only, in bold if they count."""
    reference = by_seed(runs[ARMS[0].name])
    lines = ["| arm | steps to .8 | area | final |", "| --- | --- | --- | --- |"]
    for name, results in runs.items():
        if name != ARMS[0].name:
            figures = by_seed(results)
            cells = [difference(figures, reference, column, least) for column, least in COMPARED]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


COMPARED = (("steps to .8", 0.0), ("area", LEAST), ("final", LEAST))
"""The compared figures, each with the smallest difference that counts."""
Figures = Mapping[int, Mapping[str, float | None]]
"""The figures of the runs of an arm by seed."""


def by_seed(results: Sequence[Mapping[str, Any]]) -> Figures:
    return {each["seed"]: figures_of(each) for each in results}


def difference(figures: Figures, reference: Figures, column: str, least: float) -> str:
    """Return the mean difference ± its standard error over the seeds that reached both values."""
    pairs = [
        (figures[seed][column], reference[seed][column]) for seed in figures if seed in reference
    ]
    found = [one - other for one, other in pairs if one is not None and other is not None]
    if len(found) < 2:
        return "–"
    mean, error = mean_and_error(found)
    digits = 1 if column == "steps to .8" else 3
    text = f"{mean:+.{digits}f} ± {error:.{digits}f}"
    if len(found) < len(pairs):
        return f"{text} ({len(found)} of {len(pairs)} seeds)"
    return f"**{text}**" if counts(found, least) else text


def page(stored: Mapping[str, Any]) -> str:
    """Return the stored results as a Markdown page."""
    results = [each for runs in stored["runs"].values() for arm in runs.values() for each in arm]
    seconds = [each["seconds"] for each in results]
    names = ", ".join(f"{name} {number}" for name, number in stored["versions"].items())
    parts = [
        INTRODUCTION.format(
            runs=len(results),
            versions=names,
            least=min(seconds),
            most=max(seconds),
            minutes=sum(seconds) / 60,
        )
    ]
    for kind, runs in stored["runs"].items():
        parts += [section(kind, runs)]
    return "\n\n".join([*parts, NOTES.strip()]) + "\n"


def section(kind: str, runs: Runs) -> str:
    """Return the tables of one kind of policy before the training."""
    first = next(iter(runs.values()))
    before = [each["points"][0][1]["right"] for each in first]
    seeds = sorted({each["seed"] for results in runs.values() for each in results})
    return SECTION.format(
        title=TITLES[kind],
        steps=first[0]["steps"],
        interval=first[0]["steps"] // POINTS,
        seeds=", ".join(map(str, seeds)),
        before=cell(before),
        table=table(runs),
        comparisons=comparisons(runs),
        file=f"search_agents_{kind}.svg",
    )


TITLES = {
    "noisy": "Demonstrator that answers from its last fact",
    "guessing": "Demonstrator that guesses unless it made both hops",
}
INTRODUCTION = """\
# Turn credit in the tiny search world

`python benchmarks/search_agents.py` wrote this page. [The world](../../docs/tiny-world.md#search)
asks two hops of a search agent. Each run trains with GRPO, 16 questions × 8 rollouts, learning rate
5e-4, temperature 1, and no KL penalty. All arms have the same outcome, the same settings and the
same questions; they differ in the rewards of the searches and in the credit method. The policy is
measured on 400 new questions, and at the end on 1,000 others, sampled at temperature 1. The tables
show the mean ± the standard deviation over the seeds.

Versions: {versions}; one thread per run.
A training took {least:.0f} to {most:.0f} s on a shared machine, and all {runs} trainings
{minutes:.0f} minutes.

- `steps to .8`: step at which the accuracy reaches .8, on lines between the measurements.
- `area`: mean accuracy over the training. `final`: accuracy at its end.
- `dead groups`: share of groups in which all advantages are 0, over the training.
- `first query`: share of first queries that are the person of the question. `second query`: share
  of second queries that are the friend of this person. These and the following columns are measured
  at the end."""
SECTION = """\
## {title}

{steps} steps, measured every {interval} steps; seeds: {seeds}. Right before the training: {before}.

{table}

Differences from outcome only, by seed: mean ± standard error. Runs of one seed have the same policy
before the training and the same questions. Bold: a difference of more than two standard errors, for
accuracies also of more than .04.

{comparisons}

![Learning curves]({file})"""
NOTES = """
## The hypothesis does not hold here

The expectation was that turn credit reaches an accuracy of .8 in fewer steps than the outcome
alone, by more than two standard errors, and that the control with permuted rewards does not. No arm
does. The coverage of the gold documents with the accumulated return needs about as many steps as
the outcome alone. All arms with the information gain need more, and in one run the accumulated
return of the gain taught the policy not to search.

## What the toy shows, and what it does not

- Only the rewards of the searches and the credit method differ between the arms. No arm was tuned.
  The setting `bad_end` of `igpo` and of `stepsearch` is 0, so that all arms have the
  outcome of `search-r1`. The weights of the process rewards are the defaults of the recipes.
- After the first search, the flower is still unknown, so that the information gain of this search
  is close to 0 by construction, and all of the gain belongs to the second search. `igpo` rewards
  the first search only through the accumulated return. The coverage rewards both searches.
- The likelihood of the gold answer is measured right after the results, after the words `<answer>`.
  The demonstrator writes a thought before its answer, so the policy before the training gives the
  documented answer a probability of about .2 there, and not of 1.
- A thought repeats a fact before each action. Without thoughts, a model of this size does not learn
  to read the results within 700 steps of supervised training.
- A policy that finds the right document almost always answers right. Therefore the outcome alone
  says which searches were good, and a reward of the searches adds little but noise.
  `--bases guessing` begins with a policy that often ignores what it found. It was added after the
  first runs had shown no difference, and it is not measured here. A policy that searched worse was
  tried and dropped before.
- A step has 128 rollouts, the vocabulary 99 words, and the retriever always finds the fact about
  a person. With a large action space, few rollouts or a weak retriever, more groups contain no
  right rollout.
- The figures say nothing about the size of an effect in a language model.
"""


def collect(kind: str, seeds: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
    """Return the finished runs of each arm."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for each in ARMS:
        files = [file_of(each, kind, seed) for seed in seeds]
        found = [json.loads(file.read_text("utf-8")) for file in files if file.exists()]
        if found:
            runs[each.name] = found
    return runs


def store(all_runs: Mapping[str, Runs]) -> None:
    """Write the figures that the page and the pictures need, one run per line."""
    sections = []
    for kind, runs in all_runs.items():
        lines = []
        for name, results in runs.items():
            rows = ",\n".join(f"    {json.dumps(essential(each))}" for each in results)
            lines.append(f"   {json.dumps(name)}: [\n{rows}\n   ]")
        body = ",\n".join(lines)
        sections.append(f'  "{kind}": {{\n{body}\n  }}')
    first = next(iter(next(iter(all_runs.values())).values()))[0]
    body = ",\n".join(sections)
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


def picture(kind: str, runs: Runs) -> None:
    """Draw the accuracy and the share of right second queries of all arms."""
    from rag_rewards.tiny_world.learning_curve import draw

    panels = {"right answers": "right", "second query names the friend": "second query"}
    lines = {
        title: {
            name: [[(s, m[measure] or 0.0) for s, m in each["points"]] for each in results]
            for name, results in runs.items()
        }
        for title, measure in panels.items()
    }
    draw(lines, FILE.with_name(f"search_agents_{kind}.svg"), TITLES[kind])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--bases", nargs="+", choices=STEPS, default=["noisy"])
    parser.add_argument("--one", metavar="ARM", help="run one arm with the first seed and base")
    parser.add_argument("--before", nargs="+", default=[], help="words before each run's command")
    parser.add_argument("--no-page", action="store_true", help="store the runs and write no page")
    parser.add_argument("--page", action="store_true", help="write the page from stored figures")
    parser.add_argument("--finished", action="store_true", help="write the page without new runs")
    options = parser.parse_args()
    if options.one:
        run_one(options.one, options.bases[0], options.seeds[0])
        return 0
    if not (options.page or options.finished):
        run_missing(options.bases, options.seeds, options.before)
    if options.no_page:
        return 0
    if not options.page:
        store({kind: runs for kind in options.bases if (runs := collect(kind, options.seeds))})
    stored = json.loads(FILE.read_text("utf-8"))
    text = page(stored)
    FILE.with_suffix(".md").write_text(text, "utf-8")
    for kind, runs in stored["runs"].items():
        picture(kind, runs)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
