"""Agreement with human labels: the counts, and the agreement of the matchers with people."""

from __future__ import annotations

import importlib.util
import sys
from math import isnan
from pathlib import Path

import pytest

from rag_rewards.metrics.agreement import Agreement

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "agreement.py"


def naive_kappa(pairs):
    """Return κ from the definition, with probabilities of each class."""
    count = len(pairs)
    observed = sum(a == b for a, b in pairs) / count
    expected = sum(
        sum(a == value for a, _ in pairs) / count * sum(b == value for _, b in pairs) / count
        for value in (True, False)
    )
    return (observed - expected) / (1 - expected)


def test_kappa_equals_its_definition():
    pairs = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    agreement = Agreement.of(pairs)
    assert agreement == Agreement(20, 5, 10, 15)
    assert agreement.kappa == pytest.approx(naive_kappa(pairs)) == pytest.approx(0.4)
    assert agreement.false_positive_rate == 5 / 20
    assert agreement.false_negative_rate == 10 / 30


def test_one_class_has_no_kappa():
    assert isnan(Agreement.of([]).kappa)
    assert isnan(Agreement.of([(True, True)]).kappa)
    assert isnan(Agreement.of([(True, True)]).false_positive_rate)
    assert Agreement.of([(False, True), (True, True)]).kappa == 0.0
    assert Agreement.of([(True, False), (False, True)]).kappa == -1.0


def load_benchmark():
    spec = importlib.util.spec_from_file_location("agreement_benchmark", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look the module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "target"), [("nq", 0.78), ("tq", 0.86)])
def test_the_lenient_matcher_agrees_with_people(shared, name, target):
    benchmark = load_benchmark()
    labels = benchmark.read(shared / "data" / "evouna" / f"{name}_half.jsonl")
    for part in ("development", "test"):
        pairs = [(benchmark.lenient(row), row.label) for row in labels if row.part == part]
        assert Agreement.of(pairs).kappa >= target, part
