"""The pages of the ablations agree with their stored figures."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "benchmarks" / "results" / "teaches").glob("*.json"))


@pytest.fixture
def experiment_module(monkeypatch):
    """Return a function that imports a module of benchmarks/teaches."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "teaches")
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if "benchmarks" in file:
            del sys.modules[name]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_page_contains_the_stored_figures_and_the_notes(file, experiment_module):
    stored = json.loads(file.read_text("utf-8"))
    definition = experiment_module(file.stem).EXPERIMENT
    assert set(stored["runs"]) == {variant.name for variant in definition.variants}
    assert all(len(runs) == len(stored["seeds"]) for runs in stored["runs"].values())
    assert experiment_module("experiment").page(definition, stored) == (
        file.with_suffix(".md").read_text("utf-8")
    )


def test_a_stored_run_contains_what_the_page_needs(experiment_module, monkeypatch, tmp_path):
    module = experiment_module("experiment")
    variants = (module.Variant("base", None), module.Variant("full", {"recipe": "lear"}, 5))
    definition = module.Experiment("name", "Title", "lear", variants, ("answer",), ("answer",))
    figures = {
        mode: {"answer": value, "other": 1.0}
        for mode, value in (("greedy", 0.123456), ("sampled", float("nan")))
    }
    run = {
        "figures": figures,
        "seconds": 2.0,
        "total": 3.04,
        "points": [(0, {"answer": 0.5, "other": 1.0})],
    }
    results = {"base": [run | {"points": []}] * 2, "full": [run] * 2}
    (tmp_path / "teaches").mkdir()
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "version", lambda name: "1")
    module.store(definition, results, (0, 1))
    stored = json.loads((tmp_path / "teaches" / "name.json").read_text("utf-8"))
    assert stored["runs"]["full"][0] == {
        "steps": 5,
        "seconds": 2.0,
        "total": 3.0,
        "figures": {"greedy": {"answer": 0.12346}, "sampled": {"answer": None}},
        "points": [[0, {"answer": 0.5}]],
    }
    text = module.page(definition, stored)
    assert "| full | 0.123 ± 0.000 |" in text
    assert "| full | – |" in text
    assert "![Learning curves](name.svg)" in text
    assert module._budget(definition, [("full", 0)] * 40, 2).endswith(
        "Estimate: 1 minutes (0.60 s per step, 2 workers)"
    )
