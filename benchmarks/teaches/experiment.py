"""Common code of the experiments: base models, runs, tables with mean and spread, curves.

A run is a variant with a seed. Each run has its own process with one thread and stores its figures
in build/teaches/. Runs with stored figures are not repeated, so an interrupted experiment can
continue. Each seed has its own base model, pre-trained with that seed.
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
"""Number of questions on which a policy is measured. They are not part of any training."""
RESULTS = ROOT / "benchmarks" / "results"
BUILD = ROOT / "build"

Figures = dict[str, float]
Results = Mapping[str, Sequence[Any]]
"""The results of the runs of each variant, in the order of the seeds."""


@dataclass(frozen=True)
class Variant:
    """One row of a table: the configuration of a training, without its seed.

    reward          options of RagReward, or a function that returns them for a base model
    columns         (base, questions) → more columns of the data set
    trainer_class   function that returns a trainer class other than GRPOTrainer
    measure         (model, tokenizer, questions, temperature, base) → more figures
    is_plotted      whether the picture contains the variant
    """

    name: str
    reward: Mapping[str, Any] | Callable[[Path], Mapping[str, Any]] | None
    steps: int = 60
    unanswerable: float | tuple[tuple[int, float], ...] | None = None
    trainer: Mapping[str, Any] = field(default_factory=dict)
    columns: Callable[[Path, Sequence[Any]], Sequence[dict[str, Any]]] | None = None
    trainer_class: Callable[[], Any] | None = None
    measure: Callable[[Any, Any, Sequence[Any], float, Path], Figures] | None = None
    is_plotted: bool = True


@dataclass(frozen=True)
class Experiment:
    """Variants with one output form, the columns of the table, and the panels of the picture.

    A variant without a reward is the base model without further training.

    base   the kind of base model, see `base`
    seeds  seeds whose base models can find and cite documents: a reward does not teach what a base
           model never samples
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
    """Return the folder of the base model of a seed. Pre-train the model if it is missing.

    full  trained with all output forms
    bare  trained with the form `plain` only
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
    """Train a variant. Return its final figures, the points of its curve and the seconds."""
    import torch

    from rag_rewards.tiny_world.formats import FORMATS
    from rag_rewards.tiny_world.learning_curve import LearningCurve
    from rag_rewards.tiny_world.measures import measure
    from rag_rewards.tiny_world.model import load
    from rag_rewards.tiny_world.train import Run, train
    from rag_rewards.tiny_world.world import UNANSWERABLE, questions

    torch.set_num_threads(1)
    definition = _load_experiment(experiment)
    variant = next(each for each in definition.variants if each.name == name)
    form = next(each for each in FORMATS if each.name == definition.form)
    start, fresh = base(seed, definition.base), questions(FRESH, f"fresh {seed}")
    curve = LearningCurve(form)
    seconds, points = 0.0, []
    if variant.reward is None:
        model, tokenizer = load(start)
    else:
        reward = variant.reward(start) if callable(variant.reward) else variant.reward
        share = UNANSWERABLE if variant.unanswerable is None else variant.unanswerable
        run = Run(form, reward, variant.steps, seed, start, share, variant.trainer)
        rows = None
        if variant.columns:
            columns = variant.columns(start, run.questions)
            rows = [form.row(q) | more for q, more in zip(run.questions, columns, strict=True)]
        trainer_class = variant.trainer_class() if variant.trainer_class else None
        folder = BUILD / "teaches" / experiment / f"{_identity(variant, start)}-{seed}"
        # Start again: a resumed run would lack the first part of its curve, and runs are short.
        shutil.rmtree(folder, ignore_errors=True)
        start_time = time.perf_counter()
        trainer = train(run, folder, rows=rows, trainer_class=trainer_class, callbacks=[curve])
        shutil.rmtree(folder)
        seconds, points = time.perf_counter() - start_time, curve.points
        model, tokenizer = trainer.model, trainer.processing_class
    figures = {}
    for mode, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        figures[mode] = measure(model, tokenizer, form, fresh, temperature=temperature)
        if variant.measure:
            figures[mode] |= variant.measure(model, tokenizer, fresh, temperature, start)
    return {"figures": figures, "points": points, "seconds": seconds}


def _load_experiment(name: str) -> Experiment:
    """Import an experiment by name, because its functions cannot be sent to another process."""
    import importlib

    sys.path.insert(0, str(Path(__file__).parent))
    return importlib.import_module(name).EXPERIMENT


# --- all runs ------------------------------------------------------------------------------------


def run_all(experiment: Experiment, seeds: Sequence[int], workers: int) -> Results:
    """Return the results of each variant, one per seed. Stored results are read from files."""
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
            figures = _figures_text(result["figures"]["sampled"], experiment.columns)
            count = f"{done}/{len(missing)}"
            seconds = f"{result['seconds']:.0f} s"
            print(f"{count} {key[0]}, seed {key[1]}, {seconds}: {figures}", flush=True)
    return {
        v.name: [json.loads(files[v.name, s].read_text("utf-8")) for s in seeds]
        for v in experiment.variants
    }


def _identity(variant: Variant, start: Path) -> str:
    """Return a file name that identifies the variant and its base model."""
    plain = [variant.name, variant.steps, variant.unanswerable, dict(variant.trainer)]
    if not callable(variant.reward):
        plain.append(variant.reward)
    digest = hashlib.sha256(json.dumps(plain).encode())
    digest.update((start / "model.safetensors").read_bytes())
    name = "".join(c if c.isalnum() else "-" for c in variant.name.lower())
    return f"{name.strip('-')}-{digest.hexdigest()[:8]}"


def _figures_text(figures: Figures, columns: Sequence[str]) -> str:
    return ", ".join(f"{name} {figures[name]:.3f}" for name in columns)


# --- the table -----------------------------------------------------------------------------------


def table(experiment: Experiment, results: Results, mode: str) -> str:
    """Return a table with one row per variant: mean ± standard deviation over the seeds."""
    lines = [
        f"| run | {' | '.join(experiment.columns)} |",
        f"| --- |{' --- |' * len(experiment.columns)}",
    ]
    for name, runs in results.items():
        by_seed = [run["figures"][mode] for run in runs]
        cells = [_cell([figures[column] for figures in by_seed]) for column in experiment.columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{fmean(values):.3f} ± {stdev(values):.3f}"


def list_of_runs(experiment: Experiment, results: Results, seeds: Sequence[int]) -> str:
    """Return a list of all runs, including those of the base models."""
    lines = []
    for name, runs in results.items():
        for seed, run in zip(seeds, runs, strict=True):
            figures = _figures_text(run["figures"]["sampled"], experiment.columns)
            lines.append(f"- {name}, seed {seed}: {figures}")
    return "\n".join(lines)


def page(experiment: Experiment, results: Results, seeds: Sequence[int]) -> str:
    """Return the results as a Markdown page."""
    trained = {v.name for v in experiment.variants if v.reward is not None}
    seconds = [run["seconds"] for name in trained for run in results[name]]
    command = f"python benchmarks/teaches/{experiment.name}.py"
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "trl"))
    return (
        "\n\n".join(
            [
                f"# {experiment.title}",
                f"`{command}` wrote this page. Seeds: {', '.join(map(str, seeds))}; {FRESH:,} new "
                "questions per seed. The tables show the mean ± the standard deviation over the "
                f"seeds. Versions: {versions}, Python {platform.python_version()}; one thread per "
                f"run. Each training took {min(seconds):.0f} to {max(seconds):.0f} s.",
                "Greedy decoding:",
                table(experiment, results, "greedy"),
                "Sampled at temperature 1:",
                table(experiment, results, "sampled"),
                f"![Learning curves]({experiment.name}.svg)",
                "All runs, sampled at temperature 1:",
                list_of_runs(experiment, results, seeds),
                experiment.notes.strip(),
            ]
        ).strip()
        + "\n"
    )


def picture(experiment: Experiment, results: Results, file: Path) -> None:
    """Draw the learning curves of the plotted variants, sampled on new questions."""
    from rag_rewards.tiny_world.learning_curve import draw, lines_of

    points = {
        v.name: [run["points"] for run in results[v.name]]
        for v in experiment.variants
        if v.reward is not None and v.is_plotted
    }
    draw({name: lines_of(points, name) for name in experiment.panels}, file, experiment.title)


def main(experiment: Experiment) -> int:
    """Run an experiment from the command line."""
    options = argparse.ArgumentParser(description=experiment.title)
    options.add_argument("--seeds", type=int, nargs="+", default=list(experiment.seeds))
    options.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    options.add_argument("--only", nargs="+", help="variants to run, without writing results")
    arguments = options.parse_args()
    seeds, workers = arguments.seeds, arguments.workers
    if arguments.only:
        variants = [v for v in experiment.variants if v.name in arguments.only]
        results = run_all(replace(experiment, variants=variants), seeds, workers)
        print(
            table(experiment, results, "greedy"), table(experiment, results, "sampled"), sep="\n\n"
        )
        return 0
    results = run_all(experiment, seeds, workers)
    folder = RESULTS / "teaches"
    folder.mkdir(parents=True, exist_ok=True)
    text = page(experiment, results, seeds)
    (folder / f"{experiment.name}.md").write_text(text, "utf-8")
    picture(experiment, results, folder / f"{experiment.name}.svg")
    print(text)
    return 0
