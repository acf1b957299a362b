"""Compare outcome-only training with turn credit in the tiny search world.

    build/trainers/trl/bin/python benchmarks/search_agents.py             # runs, then the page
    build/trainers/trl/bin/python benchmarks/search_agents.py --page      # the page alone
    build/trainers/trl/bin/python benchmarks/search_agents.py --finished  # from the finished runs
    build/trainers/trl/bin/python benchmarks/search_agents.py --settings rare  # one setting

A run is an arm with a seed. It has one thread, and its results are stored in build/search-agents/
as soon as it ends, so that an interrupted comparison continues where it stopped. The figures of a
complete comparison are in benchmarks/results/search_agents.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

from harness import processor
from tiny_search.arms import SETTINGS, Arm, arm
from tiny_search.page import Runs, cell, figures_of, page

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
FOLDER = BUILD / "search-agents"
FILE = ROOT / "benchmarks" / "results" / "search_agents.json"
SEEDS = (0, 1, 2, 3, 4)
FRESH = 1_000
"""Questions on which the policy is measured at the end."""


# --- one run -------------------------------------------------------------------------------------


def run(arm: Arm, name: str, seed: int) -> dict[str, Any]:
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
    machine = processor()
    setting = SETTINGS[name]
    steps, recall, kind = setting.steps, setting.recall, setting.base
    start = base(seed, BUILD / "tiny-world" / f"search-{kind}-{seed}", kind)
    began = time.perf_counter()
    curve = search_curve(steps // setting.points, setting.questions, recall=recall)
    one = SearchRun(arm, start, steps, seed, group_size=setting.group_size, recall=recall)
    trainer = search_trainer(one, FOLDER / f"trainer-{name}-{seed}", [curve])
    trainer.train()
    seconds = time.perf_counter() - began
    fresh = episodes(FRESH, f"fresh {seed}", recall)
    return {
        "arm": arm.name,
        "setting": name,
        "seed": seed,
        "steps": steps,
        "seconds": round(seconds, 1),
        "points": curve.points,
        "final": measure(trainer.model, trainer.processing_class, fresh, f"fresh {seed}"),
        "dead groups": dead_groups(trainer.state.log_history),
        "machine": machine,
        "device": str(trainer.accelerator.device),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    names = ("torch", "transformers", "trl")
    return {name: version(name) for name in names} | {"Python": platform.python_version()}


def file_of(arm: str, name: str, seed: int) -> Path:
    return FOLDER / f"{name}-{'-'.join(arm.replace(',', '').split())}-{seed}.json"


def run_missing(names: Sequence[str], seeds: Sequence[int], before: Sequence[str]) -> None:
    """Run what has no stored result, one process per run, all arms of a seed after each other.

    before  words before the command of a run, such as a command that limits how many run at once
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, seed in product(names, seeds):
        for each in SETTINGS[name].arms:
            if not file_of(each, name, seed).exists():
                one = [sys.executable, __file__, "--one", each, "--settings", name]
                subprocess.run([*before, *one, "--seeds", str(seed)], check=True)


def run_one(arm_name: str, name: str, seed: int) -> None:
    """Run one arm and store its result."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = file_of(arm_name, name, seed)
    part = file.with_suffix(".part")
    result = run(arm(arm_name), name, seed)
    part.write_text(json.dumps(result) + "\n", "utf-8")
    part.replace(file)
    figures = figures_of(result, SETTINGS[name].goal)
    text = ", ".join(f"{column} {cell([value])}" for column, value in figures.items())
    print(f"{file.name}: {text}", flush=True)


# --- storage -------------------------------------------------------------------------------------


def collect(name: str, seeds: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
    """Return the finished runs of each arm."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for each in SETTINGS[name].arms:
        files = [file_of(each, name, seed) for seed in seeds]
        found = [json.loads(file.read_text("utf-8")) for file in files if file.exists()]
        if found:
            runs[each] = found
    return runs


def text_of(stored: Mapping[str, Any]) -> str:
    """Return the figures that the page and the pictures need as JSON, one run per line."""
    sections = []
    for kind, runs in stored["runs"].items():
        lines = []
        for name, results in runs.items():
            rows = ",\n".join(f"    {json.dumps(essential(each))}" for each in results)
            lines.append(f"   {json.dumps(name)}: [\n{rows}\n   ]")
        body = ",\n".join(lines)
        sections.append(f'  "{kind}": {{\n{body}\n  }}')
    body = ",\n".join(sections)
    return f'{{\n "versions": {json.dumps(stored["versions"])},\n "runs": {{\n{body}\n }}\n}}\n'


def essential(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run with rounded values."""
    points = [[step, rounded(measures)] for step, measures in result["points"]]
    dead = [round(value, 4) for value in result["dead groups"]]
    names = ("seed", "steps", "seconds", "machine", "device")
    plain = {name: result[name] for name in names if name in result}
    return {**plain, "final": rounded(result["final"]), "points": points, "dead groups": dead}


def rounded(measures: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 4) for name, value in measures.items()}


def picture(name: str, runs: Runs) -> None:
    """Draw the accuracy and the share of right second queries of all arms."""
    from rag_rewards.tiny_world.learning_curve import draw

    panels = {"right answers": "right", "second query names the friend": "second query"}
    lines = {
        title: {
            each: [[(s, m[measure] or 0.0) for s, m in run["points"]] for run in results]
            for each, results in runs.items()
        }
        for title, measure in panels.items()
    }
    draw(lines, FILE.with_name(f"search_agents_{name}.svg"), SETTINGS[name].title)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--one", metavar="ARM", help="run one arm in the first setting")
    parser.add_argument("--before", nargs="+", default=[], help="words before each run's command")
    parser.add_argument("--no-page", action="store_true", help="store the runs and write no page")
    parser.add_argument("--page", action="store_true", help="write the page from stored figures")
    parser.add_argument("--finished", action="store_true", help="write the page without new runs")
    options = parser.parse_args()
    if options.one:
        run_one(options.one, options.settings[0], options.seeds[0])
        return 0
    if not (options.page or options.finished):
        run_missing(options.settings, options.seeds, options.before)
    if options.no_page:
        return 0
    stored = json.loads(FILE.read_text("utf-8"))
    if not options.page:
        for name in options.settings:
            if runs := collect(name, options.seeds):
                stored["runs"][name] = runs
                stored["versions"][name] = next(iter(runs.values()))[0]["versions"]
    figures = text_of(stored)
    stored = json.loads(figures)
    text = page(stored)  # before any file is written, because it raises for incomplete runs
    if not options.page:
        FILE.write_text(figures, "utf-8")
    FILE.with_suffix(".md").write_text(text, "utf-8")
    for name, runs in stored["runs"].items():
        picture(name, runs)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
