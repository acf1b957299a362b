"""What the experiments share: bases, runs that resume, tables with mean and spread, curves.

A run is a variant with a seed. Each runs in a process of its own, on one thread, and leaves its
figures in build/teaches/; what stands there is not run again, so an interrupted experiment goes on
where it was. Every seed has a base of its own, pre-trained with that seed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SEEDS = (0, 1, 2)
FRESH = 1_000
"""Questions on which a trained policy is measured; no training has seen them."""
RESULTS = ROOT / "benchmarks" / "results"
BUILD = ROOT / "build"

Figures = dict[str, float]
Results = Mapping[str, Sequence[Any]]
"""What the runs of each variant found, in the order of the seeds."""


@dataclass(frozen=True)
class Variant:
    """One row of a table: a training, apart from its seed.

    reward   options of RagReward, or a function of the run's start that makes them
    columns  (start, questions) → further columns of the data set
    kind     a trainer other than GRPOTrainer, made in the run's process
    further  (model, tokenizer, questions, temperature, start) → further figures
    shown    whether it has a line in the picture
    """

    name: str
    reward: Mapping[str, Any] | Callable[[Path], Mapping[str, Any]] | None
    steps: int = 60
    unanswerable: float | tuple[tuple[int, float], ...] | None = None
    trainer: Mapping[str, Any] = field(default_factory=dict)
    columns: Callable[[Path, Sequence[Any]], Sequence[dict[str, Any]]] | None = None
    kind: Callable[[], Any] | None = None
    further: Callable[[Any, Any, Sequence[Any], float, Path], Figures] | None = None
    shown: bool = True


@dataclass(frozen=True)
class Experiment:
    """Variants over one format, the table's columns, and the curve's panels.

    A variant without a reward is the base, measured as it is.

    base   the kind of base
    seeds  of bases that can bind and cite: what a base never does by chance, no reward teaches
    """

    name: str
    title: str
    form: str
    variants: Sequence[Variant]
    columns: Sequence[str]
    panels: Sequence[str]
    base: str = "full"
    seeds: tuple[int, ...] = SEEDS
    notes: str = ""


def base(seed: int, kind: str = "full") -> Path:
    """The pre-trained model of a seed; it is made where it is missing.

    full  knows every format
    bare  the bare one alone
    """
    folder = BUILD / "tiny-world" / (f"seed-{seed}" if kind == "full" else f"{kind}-{seed}")
    if not (folder / "made.json").exists():
        command = [sys.executable, "-m", "rag_rewards.tiny_world.pretrain"]
        command += ["--seed", str(seed), "-o", str(folder)]
        command += ["--bare"] if kind == "bare" else []
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


# --- one run -------------------------------------------------------------------------------------


def run_one(experiment: str, name: str, seed: int) -> dict[str, Any]:
    """Train a variant and measure it: figures at the end, the curve, the seconds."""
    import torch

    from rag_rewards.tiny_world.formats import FORMATS
    from rag_rewards.tiny_world.learning_curve import LearningCurve
    from rag_rewards.tiny_world.measures import measure
    from rag_rewards.tiny_world.model import load
    from rag_rewards.tiny_world.train import Run, train
    from rag_rewards.tiny_world.world import UNANSWERABLE, questions

    torch.set_num_threads(1)
    made = _experiment(experiment)
    variant = next(each for each in made.variants if each.name == name)
    form = next(each for each in FORMATS if each.name == made.form)
    start, fresh = base(seed, made.base), questions(FRESH, f"fresh {seed}")
    curve = LearningCurve(form)
    seconds, points = 0.0, []
    if variant.reward is None:
        model, words = load(start)
    else:
        reward = variant.reward(start) if callable(variant.reward) else variant.reward
        share = UNANSWERABLE if variant.unanswerable is None else variant.unanswerable
        run = Run(form, reward, variant.steps, seed, start, share, variant.trainer)
        rows = None
        if variant.columns:
            further = variant.columns(start, run.questions)
            rows = [form.row(a) | more for a, more in zip(run.questions, further, strict=True)]
        kind = variant.kind() if variant.kind else None
        folder = BUILD / "teaches" / experiment / f"{_identity(variant, start)}-{seed}"
        # A resumed run would lack the first part of its curve, and a run is short.
        shutil.rmtree(folder, ignore_errors=True)
        began = time.perf_counter()
        trainer = train(run, folder, rows=rows, trainer_class=kind, callbacks=[curve])
        shutil.rmtree(folder)
        seconds, points = time.perf_counter() - began, curve.points
        model, words = trainer.model, trainer.processing_class
    found = {}
    for how, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        found[how] = measure(model, words, form, fresh, temperature=temperature)
        if variant.further:
            found[how] |= variant.further(model, words, fresh, temperature, start)
    return {"figures": found, "points": points, "seconds": seconds}


def _experiment(name: str) -> Experiment:
    """The experiment of that module: variants are code, and do not travel between processes."""
    import importlib

    sys.path.insert(0, str(Path(__file__).parent))
    return importlib.import_module(name).EXPERIMENT


# --- all of them ---------------------------------------------------------------------------------


def run_all(experiment: Experiment, seeds: Sequence[int], workers: int) -> Results:
    """Results by variant, one per seed; those that are there already are read."""
    folder = BUILD / "teaches" / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        bases = dict(zip(seeds, pool.map(partial(base, kind=experiment.base), seeds), strict=True))
        files = {
            (v.name, seed): folder / f"{_identity(v, start)}-{seed}.json"
            for v in experiment.variants
            for seed, start in bases.items()
        }
        missing = [key for key, file in files.items() if not file.exists()]
        waiting = {pool.submit(run_one, experiment.name, *key): key for key in missing}
        for done, future in enumerate(as_completed(waiting), 1):
            key, result = waiting[future], future.result()
            part = files[key].with_suffix(".part")
            part.write_text(json.dumps(result) + "\n", "utf-8")
            part.replace(files[key])
            said = _said(result["figures"]["sampled"], experiment.columns)
            at = f"{done}/{len(missing)}"
            print(f"{at} {key[0]}, seed {key[1]}, {result['seconds']:.0f} s: {said}", flush=True)
    return {
        v.name: [json.loads(files[v.name, s].read_text("utf-8")) for s in seeds]
        for v in experiment.variants
    }


def _identity(variant: Variant, start: Path) -> str:
    """A file name that changes with the variant and with the base that it starts from."""
    plain = [variant.name, variant.steps, variant.unanswerable, dict(variant.trainer)]
    if not callable(variant.reward):
        plain.append(variant.reward)
    digest = hashlib.sha256(json.dumps(plain).encode())
    digest.update((start / "model.safetensors").read_bytes())
    kept = "".join(c if c.isalnum() else "-" for c in variant.name.lower())
    return f"{kept.strip('-')}-{digest.hexdigest()[:8]}"


def _said(figures: Figures, columns: Sequence[str]) -> str:
    return ", ".join(f"{name} {figures[name]:.3f}" for name in columns)


# --- the table -----------------------------------------------------------------------------------


def table(experiment: Experiment, results: Results, how: str) -> str:
    """A row per variant: mean ± standard deviation over seeds."""
    lines = [
        f"| run | {' | '.join(experiment.columns)} |",
        f"| --- |{' --- |' * len(experiment.columns)}",
    ]
    for name, runs in results.items():
        found = [run["figures"][how] for run in runs]
        cells = [_cell([figures[column] for figures in found]) for column in experiment.columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{fmean(values):.3f} ± {stdev(values):.3f}"


def by_seed(experiment: Experiment, results: Results, seeds: Sequence[int]) -> str:
    """Every run, the bases among them: whether they bind and cite at all."""
    lines = []
    for name, runs in results.items():
        for seed, run in zip(seeds, runs, strict=True):
            said = _said(run["figures"]["sampled"], experiment.columns)
            lines.append(f"- {name}, seed {seed}: {said}")
    return "\n".join(lines)


def page(experiment: Experiment, results: Results, seeds: Sequence[int]) -> str:
    """The result as it is committed."""
    trained = {v.name for v in experiment.variants if v.reward is not None}
    seconds = [run["seconds"] for name in trained for run in results[name]]
    command = f"python benchmarks/teaches/{experiment.name}.py"
    with_torch = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "trl"))
    return (
        "\n\n".join(
            [
                f"# {experiment.title}",
                f"`{command}`, seeds {', '.join(map(str, seeds))}, {FRESH:,} fresh questions each; "
                f"mean ± standard deviation over seeds. {with_torch}, "
                f"Python {platform.python_version()}, "
                f"one thread a run; a training took {min(seconds):.0f} to {max(seconds):.0f} s.",
                "Greedy:",
                table(experiment, results, "greedy"),
                "Sampled at temperature 1:",
                table(experiment, results, "sampled"),
                f"![curves]({experiment.name}.svg)",
                "Every run, sampled:",
                by_seed(experiment, results, seeds),
                experiment.notes.strip(),
            ]
        ).strip()
        + "\n"
    )


def picture(experiment: Experiment, results: Results, file: Path) -> None:
    """Curves of the runs that are shown, over steps, sampled on fresh questions."""
    from rag_rewards.tiny_world.learning_curve import draw, lines_of

    shown = {
        v.name: [run["points"] for run in results[v.name]]
        for v in experiment.variants
        if v.reward is not None and v.shown
    }
    draw({name: lines_of(shown, name) for name in experiment.panels}, file, experiment.title)


def main(experiment: Experiment) -> int:
    """The command of an experiment."""
    options = argparse.ArgumentParser(description=experiment.title)
    options.add_argument("--seeds", type=int, nargs="+", default=list(experiment.seeds))
    options.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    options.add_argument("--only", nargs="+", help="variants to run, without writing results")
    given = options.parse_args()
    if given.only:
        chosen = [v for v in experiment.variants if v.name in given.only]
        results = run_all(replace(experiment, variants=chosen), given.seeds, given.workers)
        print(
            table(experiment, results, "greedy"), table(experiment, results, "sampled"), sep="\n\n"
        )
        return 0
    results = run_all(experiment, given.seeds, given.workers)
    folder = RESULTS / "teaches"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{experiment.name}.md").write_text(page(experiment, results, given.seeds), "utf-8")
    picture(experiment, results, folder / f"{experiment.name}.svg")
    print(page(experiment, results, given.seeds))
    return 0
