"""Common code of the experiments: base models, runs, tables with mean and spread, curves.

A run is a variant with a seed. Each run has its own process with one thread and stores its figures
in build/teaches/. Runs with stored figures are not repeated, so an interrupted experiment can
continue. Each seed has its own base model, pre-trained with that seed. The figures of a complete
experiment are in benchmarks/results/teaches/NAME.json, from which `--page` writes the page again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SEEDS = (0, 1, 2)
RESULTS = ROOT / "benchmarks" / "results"
BUILD = ROOT / "build"
sys.path.insert(0, str(ROOT / "benchmarks"))  # for tiny_search

SHARED = {
    "committed": "All seeds start from the committed model of the tiny world.",
    "types": "All seeds start from one model, which `question_types.py` trains.",
}
"""Sentences about the kinds of base models that are equal for all seeds."""

Figures = dict[str, float]
Results = Mapping[str, Sequence[Any]]
"""The results of the runs of each variant, in the order of the seeds."""


@dataclass(frozen=True)
class Variant:
    """One row of a table: the configuration of a training, without its seed.

    reward          options of RagReward, or a function that returns them for a base model
    columns         (base, questions) → more columns of the data set
    trainer_class   function that returns a trainer class other than GRPOTrainer
    train           (base, run) → model and tokenizer, for a training other than GRPO
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
    train: Callable[[Path, Any], tuple[Any, Any]] | None = None
    measure: Callable[[Any, Any, Sequence[Any], float, Path], Figures] | None = None
    is_plotted: bool = True

    @property
    def is_trained(self) -> bool:
        """Whether the variant is not a base model."""
        return self.reward is not None or self.train is not None


@dataclass(frozen=True)
class Experiment:
    """Variants with one output form, the columns of the table, and the panels of the picture.

    A variant without a reward and without a training is the base model.

    base          the kind of base model, see `base`
    more_bases    kinds of further base models from which trainings start
    fresh         number of questions on which a policy is measured, which no training contains
    seeds         seeds whose base models can find and cite documents: a reward does not teach what
                  a base model never samples
    one_by_one    whether one run takes place at a time, because times are compared
    """

    name: str
    title: str
    form: str
    variants: Sequence[Variant]
    columns: Sequence[str]
    panels: Sequence[str]
    base: str = "full"
    more_bases: tuple[str, ...] = ()
    fresh: int = 1_000
    seeds: tuple[int, ...] = SEEDS
    one_by_one: bool = False
    notes: str = ""


def base_seed(seed: int, kind: str) -> int:
    """Return the seed of a base model: 0 for the kinds that are equal for all seeds."""
    return 0 if kind in SHARED or kind.startswith("width-") else seed


def base(seed: int, kind: str = "full") -> Path:
    """Return the folder of the base model of a seed. Pre-train the model if it is missing.

    full       trained with all output forms
    bare       trained with the form `plain` only
    detached   trained with the forms `plain` and `lear`; the answer does not depend on the
               rationale
    committed  the committed model, which is the same for each seed
    types      the committed model after a training with all types of questions, see
               question_types.py; also the same for each seed
    width-N    trained as `full`, with hidden states of N values; also the same for each seed
    """
    if kind == "committed":
        from rag_rewards.tiny_world.model import CHECKPOINT

        return CHECKPOINT
    seed = base_seed(seed, kind)
    folder = BUILD / "tiny-world" / (f"seed-{seed}" if kind == "full" else f"{kind}-{seed}")
    if not (folder / "made.json").exists():
        option = ["--width", kind[6:]] if kind.startswith("width-") else ["--kind", kind]
        command = [sys.executable, "-m", "tiny_search.pretrain", *option]
        if kind == "types":
            command = [sys.executable, str(Path(__file__).with_name("question_types.py"))]
        command += ["--seed", str(seed), "-o", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT / "benchmarks")
    return folder


# --- one run -------------------------------------------------------------------------------------


def run_one(experiment: str, name: str, seed: int) -> dict[str, Any]:
    """Train a variant. Return its final figures, its curve, its rewards, and the seconds."""
    import torch

    from rag_rewards.tiny_world.formats import FORMATS
    from rag_rewards.tiny_world.measures import measure
    from rag_rewards.tiny_world.world import questions

    start_time = time.perf_counter()
    torch.set_num_threads(1)
    definition = _load_experiment(experiment)
    variant = next(each for each in definition.variants if each.name == name)
    form = next(each for each in FORMATS if each.name == definition.form)
    start, fresh = base(seed, definition.base), questions(definition.fresh, f"fresh {seed}")
    model, tokenizer, course = _trained(variant, form, seed, start, experiment)
    seconds = time.perf_counter() - start_time
    figures = {}
    for mode, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        figures[mode] = measure(model, tokenizer, form, fresh, temperature=temperature)
        if variant.measure:
            figures[mode] |= variant.measure(model, tokenizer, fresh, temperature, start)
        figures[mode] |= _reward_figures(course.get("rewards", []))
    total = time.perf_counter() - start_time
    return {"figures": figures, "seconds": seconds, "total": total, **course}


def _trained(
    variant: Variant, form: Any, seed: int, start: Path, experiment: str
) -> tuple[Any, Any, dict[str, Any]]:
    """Return the model of a variant, its tokenizer, and the course of the training."""
    from rag_rewards.tiny_world.learning_curve import LearningCurve
    from rag_rewards.tiny_world.model import load
    from rag_rewards.tiny_world.train import Run, train
    from rag_rewards.tiny_world.world import UNANSWERABLE

    if not variant.is_trained:
        return *load(start), {}
    reward = variant.reward(start) if callable(variant.reward) else variant.reward
    share = UNANSWERABLE if variant.unanswerable is None else variant.unanswerable
    run = Run(form, reward or {}, variant.steps, seed, start, share, variant.trainer)
    if variant.train:
        return *variant.train(start, run), {}
    rows = None
    if variant.columns:
        columns = variant.columns(start, run.questions)
        rows = [form.row(q) | more for q, more in zip(run.questions, columns, strict=True)]
    trainer_class = variant.trainer_class() if variant.trainer_class else None
    folder = BUILD / "teaches" / experiment / f"{_identity(variant, start)}-{seed}"
    # Start again: a resumed run would lack the first part of its curve, and runs are short.
    shutil.rmtree(folder, ignore_errors=True)
    curve = LearningCurve(form)
    callbacks = [curve] if variant.is_plotted else []
    trainer = train(run, folder, rows=rows, trainer_class=trainer_class, callbacks=callbacks)
    shutil.rmtree(folder)
    rewards = [each["reward"] for each in trainer.state.log_history if "reward" in each]
    course = {"points": curve.points, "rewards": rewards}
    return trainer.model, trainer.processing_class, course


def _reward_figures(rewards: Sequence[float]) -> Figures:
    """Return the mean reward of three parts of a training, five steps each."""
    parts = {"first": slice(0, 5), "20": slice(15, 20), "last": slice(-5, None)}
    return {
        f"reward {name}": fmean(rewards[part]) if rewards[part] else math.nan
        for name, part in parts.items()
    }


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
        bases = _bases(experiment, seeds, pool.map)
        files = {
            (v.name, seed): folder / f"{_identity(v, start)}-{seed}.json"
            for v in experiment.variants
            for seed, start in bases.items()
        }
        missing = [key for key, file in files.items() if not file.exists()]
        print(_budget(experiment, missing, workers), flush=True)
        waiting = {pool.submit(run_one, experiment.name, *key): key for key in missing}
        for done, future in enumerate(as_completed(waiting), 1):
            key, result = waiting[future], future.result()
            part = files[key].with_suffix(".part")
            part.write_text(json.dumps(result) + "\n", "utf-8")
            part.replace(files[key])
            figures = _figures_text(result["figures"]["sampled"], experiment.columns)
            count = f"{done}/{len(missing)}"
            seconds = f"{result['total']:.0f} s"
            print(f"{count} {key[0]}, seed {key[1]}, {seconds}: {figures}", flush=True)
    return {
        v.name: [json.loads(files[v.name, s].read_text("utf-8")) for s in seeds]
        for v in experiment.variants
    }


def _bases(
    experiment: Experiment, seeds: Sequence[int], run: Callable[..., Iterable[Path]]
) -> dict[int, Path]:
    """Return the base model of each seed. Make each missing model once, and the further ones."""
    kinds = (experiment.base, *experiment.more_bases)
    distinct = list(dict.fromkeys((base_seed(seed, k), k) for k in kinds for seed in seeds))
    folders = dict(zip(distinct, run(base, *zip(*distinct, strict=True)), strict=True))
    return {seed: folders[base_seed(seed, experiment.base), experiment.base] for seed in seeds}


def _budget(experiment: Experiment, missing: Sequence[tuple[str, int]], workers: int) -> str:
    """Return the estimated time of the missing runs, from the measured seconds per step."""
    steps = {v.name: v.steps if v.is_trained else 0 for v in experiment.variants}
    count = sum(steps[name] for name, _ in missing)
    text = f"{experiment.name}: {len(missing)} runs are missing, with {count} steps in total"
    measured = _seconds_per_step()
    if not (missing and measured):
        return text
    seconds = measured.get(experiment.name) or median(measured.values())
    minutes = seconds * count / workers / 60
    return f"{text}. Estimate: {minutes:.0f} minutes ({seconds:.2f} s per step, {workers} workers)"


def _seconds_per_step() -> dict[str, float]:
    """Return the seconds per step, with measuring, of each experiment with stored results."""
    values = {}
    for file in sorted((RESULTS / "teaches").glob("*.json")):
        stored = json.loads(file.read_text("utf-8"))
        trained = [run for runs in stored["runs"].values() for run in runs if run["steps"]]
        values[file.stem] = sum(r["total"] for r in trained) / sum(r["steps"] for r in trained)
    return values


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
    return ", ".join(f"{name} {_cell([figures[name]])}" for name in columns)


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


def _cell(values: Sequence[float | None]) -> str:
    values = [value for value in values if value is not None and not math.isnan(value)]
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{fmean(values):.3f} ± {stdev(values):.3f}"


def steps_text(variants: Sequence[Variant]) -> str:
    """Return a sentence with the steps of each training."""
    steps = ", ".join(f'"{v.name}" {v.steps}' for v in variants if v.is_trained)
    return f"Steps of the trainings: {steps}."


def list_of_runs(experiment: Experiment, results: Results, seeds: Sequence[int]) -> str:
    """Return a list of all runs, including those of the base models."""
    lines = []
    for name, runs in results.items():
        for seed, run in zip(seeds, runs, strict=True):
            figures = _figures_text(run["figures"]["sampled"], experiment.columns)
            lines.append(f"- {name}, seed {seed}: {figures}")
    return "\n".join(lines)


def page(experiment: Experiment, stored: Mapping[str, Any]) -> str:
    """Return the stored results as a Markdown page."""
    results, seeds = stored["runs"], stored["seeds"]
    seconds = [run["seconds"] for runs in results.values() for run in runs if run["steps"]]
    minutes = sum(run["total"] for runs in results.values() for run in runs) / 60
    command = f"python benchmarks/teaches/{experiment.name}.py"
    command += " --workers 1" if experiment.one_by_one else ""
    versions = ", ".join(f"{name} {number}" for name, number in stored["versions"].items())
    has_curves = any(run["points"] for runs in results.values() for run in runs)
    return (
        "\n\n".join(
            [
                f"# {experiment.title}",
                f"`{command}` wrote this page. Seeds: {', '.join(map(str, seeds))}; "
                f"{experiment.fresh:,} new questions per seed. The tables show the mean ± the "
                f"standard deviation over the seeds. Versions: {versions}; one thread per run. "
                f"Each training took {min(seconds):.0f} to {max(seconds):.0f} s, and all runs with "
                f"their measurements took {minutes:.0f} minutes in total."
                + (f" {SHARED[experiment.base]}" if experiment.base in SHARED else ""),
                "Greedy decoding:",
                table(experiment, results, "greedy"),
                "Sampled at temperature 1:",
                table(experiment, results, "sampled"),
                *([f"![Learning curves]({experiment.name}.svg)"] if has_curves else []),
                "All runs, sampled at temperature 1:",
                list_of_runs(experiment, results, seeds),
                experiment.notes.strip(),
            ]
        ).strip()
        + "\n"
    )


# --- stored results ------------------------------------------------------------------------------


def results_file(name: str) -> Path:
    """Return the file with the measured figures of an experiment."""
    return RESULTS / "teaches" / f"{name}.json"


def store(experiment: Experiment, results: Results, seeds: Sequence[int]) -> None:
    """Write the figures that the page and the picture need, one run per line."""
    steps = {v.name: v.steps if v.is_trained else 0 for v in experiment.variants}
    plotted = {v.name for v in experiment.variants if v.is_plotted}
    versions = {name: version(name) for name in ("torch", "transformers", "trl")}
    versions["Python"] = platform.python_version()
    runs = ",\n".join(
        f"  {json.dumps(name)}: [\n"
        + ",\n".join(
            f"   {json.dumps(_essential(experiment, run, steps[name], name in plotted))}"
            for run in each
        )
        + "\n  ]"
        for name, each in results.items()
    )
    head = f'"versions": {json.dumps(versions)},\n "seeds": {json.dumps(list(seeds))}'
    text = f'{{\n {head},\n "runs": {{\n{runs}\n }}\n}}\n'
    results_file(experiment.name).write_text(text, "utf-8")


def _essential(
    experiment: Experiment, run: Mapping[str, Any], steps: int, is_plotted: bool
) -> dict[str, Any]:
    """Return a run with rounded values, and with only the columns and panels of the experiment."""
    points = run.get("points", []) if is_plotted else []
    return {
        "steps": steps,
        "seconds": round(run["seconds"], 1),
        "total": round(run["total"], 1),
        "figures": {
            mode: {name: _rounded(values[name]) for name in experiment.columns}
            for mode, values in run["figures"].items()
        },
        "points": [
            [step, {name: _rounded(values[name]) for name in experiment.panels}]
            for step, values in points
        ],
    }


def _rounded(value: float) -> float | None:
    """Return a value with 5 digits. JSON has no value for a figure that does not exist."""
    return None if math.isnan(value) else round(value, 5)


def picture(experiment: Experiment, results: Results, file: Path) -> None:
    """Draw the learning curves of the plotted variants, sampled on new questions."""
    from rag_rewards.tiny_world.learning_curve import draw, lines_of

    points = {
        v.name: [run["points"] for run in results[v.name]]
        for v in experiment.variants
        if v.is_plotted and results[v.name][0]["points"]
    }
    if not points:
        return
    draw({name: lines_of(points, name) for name in experiment.panels}, file, experiment.title)


def main(experiment: Experiment) -> int:
    """Run an experiment from the command line."""
    options = argparse.ArgumentParser(description=experiment.title)
    options.add_argument("--seeds", type=int, nargs="+", default=list(experiment.seeds))
    workers = 1 if experiment.one_by_one else min(2, os.cpu_count() or 1)
    options.add_argument("--workers", type=int, default=workers)
    options.add_argument("--only", nargs="+", help="variants to run, without writing results")
    options.add_argument(
        "--page", action="store_true", help="write the page from the stored figures, without runs"
    )
    arguments = options.parse_args()
    seeds, workers = arguments.seeds, arguments.workers
    if arguments.only:
        variants = [v for v in experiment.variants if v.name in arguments.only]
        results = run_all(replace(experiment, variants=variants), seeds, workers)
        print(
            table(experiment, results, "greedy"), table(experiment, results, "sampled"), sep="\n\n"
        )
        return 0
    if not arguments.page:
        results = run_all(experiment, seeds, workers)
        (RESULTS / "teaches").mkdir(parents=True, exist_ok=True)
        store(experiment, results, seeds)
    file = results_file(experiment.name)
    stored = json.loads(file.read_text("utf-8"))
    text = page(experiment, stored)
    file.with_suffix(".md").write_text(text, "utf-8")
    picture(experiment, stored["runs"], file.with_suffix(".svg"))
    print(text)
    return 0
