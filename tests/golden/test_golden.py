"""No score differs from the committed one: see `pin.py`, which writes them."""

from __future__ import annotations

import math
from typing import Any

import pin
import pytest


@pytest.mark.parametrize("name", pin.names())
def test_the_scores_of_examples_and_attacks_are_the_committed_ones(name: str) -> None:
    expected, found = pin.read_scores(name), pin.pinned_scores(name)
    assert expected.keys() == found.keys()
    changed = {
        key: {"committed": expected[key], "now": found[key]}
        for key in expected
        if not equal(expected[key], found[key])
    }
    assert not changed


def test_the_scores_of_real_rows_are_the_committed_ones(shared: Any) -> None:
    assert pin.real_row_digests(shared) == pin.read_digests()


def test_a_changed_score_is_seen() -> None:
    """The comparison forgives the last digits of a float and nothing else."""
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
    """Whether two results are the same but for the rounding of floats."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and bool(a == b)
