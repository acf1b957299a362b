"""Decisions on labelled answers, agreement of the judge cascade with people, simulated judges."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import agreement
import decisions

ANSWERS = st.tuples(
    st.sampled_from(["right", "wrong", "undecided"]),
    st.sets(st.sampled_from(decisions.ASKS)),
    st.booleans(),
)


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_decisions_and_a_judge_agree_with_people(shared, step):
    """Every tenth answer, and all answers in a slow test."""
    files = [shared / "data" / "evouna" / f"{name}_half.jsonl" for name in ("nq", "tq")]
    groups = agreement.read_groups(files)
    decided = decisions.decided_answers({key: rows[::step] for key, rows in groups.items()})
    for (data, length), answers in decided.items():
        accepted, right = decisions.precision(answers)
        assert accepted >= 90 / step, (data, length)
        assert right >= 0.99 * accepted, (data, length)
        assert decisions.decided_among_right(answers, "wrong") <= 0.02, (data, length)
    for data, target in (("NQ", 0.8), ("TQ", 0.88)):
        short = decided[data, "short"]
        margin = 0.05 if step > 1 else 0.0  # the share of a sample differs by chance
        assert decisions.decided_among_right(short, "right") >= target - margin, data
        assert decisions.kappa(short, "judge", 0.0) >= 0.95, data
    for answers in decided.values():
        assert all(each.asks in ({"doubtful"}, {*decisions.ASKS}, set()) for each in answers)
        assert decisions.share(answers, "judge") < decisions.share(answers, "doubtful")
        assert all("judge" in each.asks for each in answers if each.value == "undecided")


def test_the_decisions_are_those_of_the_recipe():
    """With the form of a recipe, and without the decision of a simulated judge."""
    texts = ("Paris", "It is Paris.", "", "I do not know.", "Paris or Rome")
    rows = [agreement.Labelled("Which city?", ("Paris",), text, True, "test") for text in texts]
    found = [(each.value, *sorted(each.asks)) for each in decisions.decide(rows)]
    assert found == [
        ("right",),
        ("right", "doubtful"),
        ("wrong",),
        ("wrong",),
        ("undecided", "doubtful", "judge"),
    ]


@given(st.lists(ANSWERS, min_size=1), st.sampled_from(decisions.ASKS))
def test_the_cascade_against_a_naive_implementation(rows, ask):
    answers = [answer(i, *row) for i, row in enumerate(rows)]
    assert decisions.share(answers, ask) == sum(ask in asks for _, asks, _ in rows) / len(rows)
    right = [label for value, _, label in rows if value == "right"]
    assert decisions.precision(answers) == (len(right), sum(right))
    for each, (value, asks, label) in zip(answers, rows, strict=True):
        assert each.verdict(ask, errors=0.0) == (label if ask in asks else value == "right")
        assert each.judged(1.0) != label


def test_the_errors_of_a_judge():
    answers = [answer(i, "judge", {*decisions.ASKS}, True) for i in range(4000)]
    for errors in (0.05, 0.1):
        wrong = [not each.judged(errors) for each in answers]
        assert sum(wrong) / len(wrong) == pytest.approx(errors, abs=0.015)
        assert wrong == [not each.judged(errors) for each in answers]


def answer(number, value, asks, label):
    row = agreement.Labelled("Which city?", ("Paris",), str(number), label, "test")
    return decisions.Decided(row, value, frozenset(asks))
