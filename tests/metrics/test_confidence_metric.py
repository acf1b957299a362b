"""Brier score, expected calibration error and AUROC of stated confidences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

quick = budget(60)


def row(confidence, right=True, **fields):
    text = f"<think>t</think><answer>{'Paris' if right else 'Lyon'}</answer>"
    return {"response": f"{text}<confidence>{confidence}</confidence>", "answers": "Paris"} | fields


@quick
@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1, max_size=12))
def test_the_values_against_their_equations(values, pairs):
    """The twin computes each bin and each pair of a right and a wrong answer."""
    stated = [(hundredth / 100, right) for hundredth, right in pairs]
    n = len(stated)
    ece = 0.0
    for low in range(10):
        part = [
            each
            for each, (hundredth, _) in zip(stated, pairs, strict=True)
            if min(hundredth // 10, 9) == low
        ]
        if part:
            confidence = sum(p for p, _ in part) / len(part)
            accuracy = sum(c for _, c in part) / len(part)
            ece += len(part) / n * abs(confidence - accuracy)
    wins = [(p > q) + (p == q) / 2 for p, c in stated if c for q, d in stated if not d]
    assert values("brier", [row(p, right) for p, right in stated]) == pytest.approx(
        {
            "brier": sum((p - c) ** 2 for p, c in stated) / n,
            "ece": ece,
            "auroc": sum(wins) / len(wins) if wins else None,
            "confidence": sum(p for p, _ in stated) / n,
            "stated": 1.0,
        },
        abs=1e-9,
    )


def test_rows_without_a_valid_confidence_are_counted_alone(values, reported):
    rows = [row(0.8), row("80%"), row(""), {"response": "Paris", "answers": "Paris"}]
    assert values("brier", rows) == pytest.approx(
        {"brier": 0.04, "ece": 0.2, "auroc": None, "confidence": 0.8, "stated": 0.25}
    )
    assert values("brier", rows[1:]) == {
        "brier": None,
        "ece": None,
        "auroc": None,
        "confidence": None,
        "stated": 0.0,
    }
    report = reported("brier", [row(0.8), row(0.8, right=False)])
    assert (report.unit, report.units) == ("row", 2)
    assert report.counts["right@80"] == report.counts["wrong@80"] == 1


def test_rows_of_a_group_are_resampled_together(reported):
    rows = [row(0.5, group="a"), row(0.5, group="a"), row(1, False, group="b")]
    report = reported("brier", rows)
    assert (report.units, report.prompts) == (3, 2)
    value = report.values["brier"]
    assert value.low <= value.value <= value.high
    assert reported("brier>=0.5", rows).values["brier>=0.5"].value == pytest.approx(1 / 3)
