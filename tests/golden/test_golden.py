"""Scores are equal to the committed golden scores, which `pin.py` writes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pin
import pytest

from rag_rewards import RECIPES, recipe


@pytest.mark.parametrize("name", pin.names())
def test_scores_of_examples_and_attacks(name: str) -> None:
    expected, results = pin.read_scores(name), pin.pinned_scores(name)
    assert expected.keys() == results.keys()
    changed = {
        key: {"committed": expected[key], "current": results[key]}
        for key in expected
        if not equal(expected[key], results[key])
    }
    assert not changed


@pytest.fixture(scope="module")
def real_rows(shared: Path) -> Mapping[str, Sequence[pin.Row]]:
    return pin.real_rows(shared)


@pytest.mark.parametrize("name", RECIPES)
def test_scores_of_constructed_rows(name: str) -> None:
    expected = digests_of(name, pin.CONSTRUCTED_FILE)
    assert pin.row_digests(name, pin.constructed_rows()) == expected


@pytest.mark.parametrize("name", RECIPES)
def test_scores_of_real_rows(name: str, real_rows: Mapping[str, Sequence[pin.Row]]) -> None:
    expected = digests_of(name, pin.REAL_FILE)
    assert pin.row_digests(name, real_rows) == expected


def digests_of(name: str, file: Path) -> dict[str, Any]:
    """Return the committed digests of a recipe by settings."""
    digests = {
        settings: each
        for settings, each in pin.read_digests(file).items()
        if settings.partition(" ")[0] == name
    }
    assert digests, f"{file.name} has no digest of {name}: run python tests/golden/pin.py"
    return digests


def test_the_digests_belong_to_recipes() -> None:
    """A recipe that was added without the folder of real rows has no digest of real rows."""
    constructed, real = (
        {settings.partition(" ")[0] for settings in pin.read_digests(file)}
        for file in (pin.CONSTRUCTED_FILE, pin.REAL_FILE)
    )
    assert constructed == set(RECIPES)
    assert real <= set(RECIPES)


def test_constructed_rows_get_different_scores() -> None:
    """Otherwise, a digest would not show a change.

    The rows have no confidence, which rlcr reads, and no selection, which s3 reads.
    """
    rows = pin.constructed_rows()["constructed"]
    for name in RECIPES:
        results = pin.score_rows(recipe(name), rows)
        values = "components" if name in ("rlcr", "s3") else "reward"
        assert len({str(each.get(values)) for each in results}) > 1, name


def test_the_comparison_tolerates_only_rounding() -> None:
    score = {"reward": 0.1, "components": {"a": 1.0, "b": None}, "details": {"ids": ["1"]}}
    assert equal(score, score | {"reward": 0.1 + 1e-16})
    for change in (
        {"reward": 0.1000001},
        {"reward": None},
        {"components": {"a": 1.0}},
        {"components": {"a": 1.0, "b": 0.0}},
        {"details": {"ids": ["1", "2"]}},
    ):
        assert not equal(score, score | change)


def equal(a: Any, b: Any) -> bool:
    """Return whether two results are equal apart from the rounding of floats."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and bool(a == b)
