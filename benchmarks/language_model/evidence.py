"""Measure whether the evidence of a real language model is valid: CTRL-RAG, igpo and LEAR.

    python benchmarks/language_model/evidence.py          # missing parts, figures, page
    python benchmarks/language_model/evidence.py --stored # figures and page of the stored parts
    python benchmarks/language_model/evidence.py --page   # the page from the stored figures

SmolLM2 (see `model.py`) provides log-probabilities and answers through `rag_rewards.Scorer`, once.
They are stored in build/language-model/evidence/ after each part, so that a stopped run continues.
All settings of a recipe are scored from the stored values. `rows.py` makes the rows from the data
sets in `--shared` and states each construction.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

sys.path.append(str(Path(__file__).resolve().parents[1]))
from language_model import evidence_figures, evidence_page, model, rows
from language_model.rows import Item

import rag_rewards as rr
from rag_rewards.errors import RolloutError
from rag_rewards.models.model_options import ModelOptions

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "build" / "language-model" / "evidence"
FILE = ROOT / "benchmarks" / "results" / "language_model_evidence.json"
DTYPE = "bfloat16"
SEARCHES, SEED = 40, 0
"""Rollouts of R1-Searcher that are measured, and the seed of their choice."""
LEAR_ROWS = 48
"""Rollouts of LEAR, four of each question."""
PART = {"contrastive": 36, "copied": 10, "search": 10, "lear": 16}
"""Rows of a part, which is stored at once. Results of other questions come from the same part."""


@dataclass(frozen=True)
class Task:
    """Rows that are scored with one recipe and one prompt."""

    name: str
    data: str
    prompt: str
    dtype: str = DTYPE

    def items(self, shared: Path) -> list[Item]:
        """Return the rows."""
        if self.name == "contrastive":
            return rows.contrastive_items(shared, self.data, self.prompt)
        if self.name == "copied":
            return rows.copied_answers(shared, self.data, self.prompt)
        if self.name == "lear":
            return rows.lear_items(shared, self.data, self.prompt)[:LEAR_ROWS]
        searched = [
            item
            for item in rows.search_items(shared, self.prompt)
            if len(item.rollout.trajectory().turns) > 1
        ]
        return random.Random(SEED).sample(searched, SEARCHES)

    def recipe(self) -> rr.Recipe:
        """Return a recipe that needs all evidence of the task."""
        if self.name in ("contrastive", "copied"):
            return rr.recipe("ctrl-rag")
        if self.name == "lear":
            return rr.recipe("lear")
        empty = rr.recipe("igpo", {"gain.baseline": "empty"})
        other = rr.recipe(
            "igpo", {"gain.baseline": "random", "gain.random": evidence_figures.DRAWS}
        )
        return rr.custom("gains", rr.Mean((empty, other)))

    def file(self, part: int) -> Path:
        return STORE / f"{self.name}-{self.data}-{self.prompt}-{self.dtype}-{part:03d}.json"


TASKS = [
    Task("contrastive", "HotpotQA", "chat"),
    Task("search", "R1-Searcher", "chat"),
    Task("contrastive", "HotpotQA", "plain"),
    Task("contrastive", "NQ", "chat"),
    Task("contrastive", "MuSiQue", "chat"),
    Task("lear", "HotpotQA", "chat"),
    Task("search", "R1-Searcher", "plain"),
    Task("copied", "HotpotQA", "chat"),
    Task("contrastive", "2Wiki", "chat"),
    Task("contrastive", "NQ", "plain"),
    Task("contrastive", "MuSiQue", "plain"),
    Task("contrastive", "2Wiki", "plain"),
    Task("copied", "HotpotQA", "plain"),
    Task("lear", "HotpotQA", "plain"),
]
"""In the order in which they run."""
PRECISION = Task("contrastive", "HotpotQA", "chat", "float32")
"""The same rows in float32, of which the first part is measured."""


# --- measurement ---------------------------------------------------------------------------------


def parts(task: Task, shared: Path) -> Iterator[tuple[Path, Sequence[Item]]]:
    """Yield the file of each part with its rows."""
    items, size = task.items(shared), PART[task.name]
    for start in range(0, len(items), size):
        yield task.file(start // size), items[start : start + size]


def measure(task: Task, scorer: rr.Scorer, shared: Path, most: int | None = None) -> None:
    """Store the evidence of the parts that are missing, at most of the first `most` ones.

    The last part comes first, because the questions with most documents are at the end of a file.
    """
    STORE.mkdir(parents=True, exist_ok=True)
    for file, items in reversed(list(parts(task, shared))[:most]):
        if file.exists():
            continue
        began, processor = time.perf_counter(), time.process_time()
        results = scorer.gather([item.rollout for item in items])
        stored = {
            "digest": digest(items),
            "rows": [
                {"error": str(each)} if isinstance(each, RolloutError) else evidence_of(each)
                for each in results
            ],
            "seconds": round(time.perf_counter() - began, 1),
            "processor": round(time.process_time() - processor, 1),
        }
        partial = file.with_suffix(".part")
        partial.write_text(json.dumps(stored), "utf-8")
        partial.replace(file)
        print(f"{file.name}: {stored['seconds']} s, {stored['processor']} s of the CPU", flush=True)


def digest(items: Sequence[Item]) -> str:
    """Return a digest of rows, without which stored evidence could be that of other rows."""
    text = msgspec.json.encode([item.rollout for item in items])
    return hashlib.sha256(text).hexdigest()[:16]


FIELDS = ("logprobs", "turn_logprobs", "masked_answers")


def evidence_of(rollout: rr.Rollout) -> dict[str, Any]:
    """Return the evidence of a rollout as plain data."""
    return {name: msgspec.to_builtins(getattr(rollout, name)) for name in FIELDS}


def measure_all(shared: Path) -> None:
    """Measure all tasks with one model."""
    models: dict[str, rr.Models] = {}
    for task in [*TASKS[:1], PRECISION, *TASKS[1:]]:
        if task.dtype not in models:
            options = ModelOptions(model=str(model.folder()), dtype=task.dtype, device="cpu")
            models[task.dtype] = options.load()
        scorer = rr.Scorer(task.recipe(), models[task.dtype])
        measure(task, scorer, shared, 1 if task is PRECISION else None)


def stored(task: Task, shared: Path) -> tuple[list[Item], dict[str, float]]:
    """Return the rows of the stored parts with their evidence, and seconds and counts."""
    result: list[Item] = []
    seconds = {"seconds": 0.0, "processor": 0.0, "errors": 0, "rows": 0, "all": 0}
    for file, items in parts(task, shared):
        seconds["all"] += len(items)
        if not file.exists():
            continue
        content = json.loads(file.read_text("utf-8"))
        if content["digest"] != digest(items):
            raise SystemExit(f"{file} belongs to other rows: delete it, and run again")
        seconds["rows"] += len(items)
        for name in ("seconds", "processor"):
            seconds[name] += content[name]
        for item, evidence in zip(items, content["rows"], strict=True):
            if "error" in evidence:
                seconds["errors"] += 1
            else:
                result.append(item.with_evidence(evidence))
    return result, seconds


# --- the command ---------------------------------------------------------------------------------


def figures(shared: Path) -> dict[str, Any]:
    """Return all figures of the stored parts."""
    items: dict[str, list[Item]] = {}
    spent: dict[str, Mapping[str, float]] = {}
    for task in [*TASKS, PRECISION]:
        name = f"{task.name} {task.data} {task.prompt} {task.dtype}"
        items[name], spent[name] = stored(task, shared)
    return {
        "versions": {
            **{name: version(name) for name in ("torch", "transformers")},
            "rag-rewards": rr.__version__,
            "Python": platform.python_version(),
        },
        "machine": cpu(),
        "spent": spent,
        **evidence_figures.all_figures(items),
    }


def text_of(content: Mapping[str, Any]) -> str:
    """Return JSON in which each innermost object is one line.

    >>> print(text_of({"a": {"b": 1, "c": 2}}), end="")
    {
     "a": {"b": 1, "c": 2}
    }
    """
    text = json.dumps(content, indent=1)
    return re.sub(r"\{\s+([^{}]+?)\s+\}", lambda match: f"{{{_joined(match[1])}}}", text) + "\n"


def _joined(text: str) -> str:
    return re.sub(r"\n *", " ", text)


def cpu() -> str:
    """Return the model of the processor and the number of cores."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "CPU")
    return f"{name}, {os.cpu_count()} cores, of which one was used"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args(argv)
    if not options.page:
        if not options.stored:
            import torch

            torch.set_num_threads(1)
            measure_all(options.shared)
        FILE.write_text(text_of(figures(options.shared)), "utf-8")
    page = evidence_page.page(json.loads(FILE.read_text("utf-8")))
    FILE.with_suffix(".md").write_text(page, "utf-8")


if __name__ == "__main__":
    main()
