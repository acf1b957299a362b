"""Agreement of the judge cascade with people, and its simulated judges."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import agreement
import cascade_curve as curve


@pytest.fixture(scope="module", params=[4, pytest.param(1, marks=pytest.mark.slow)])
def parts(request, shared):
    """The answers of both data sets: every fourth one, and all of them in a slow test."""
    folder = shared / "data" / "evouna"
    labelled = {
        name: agreement.read(folder / f"{name}_half.jsonl")[:: request.param]
        for name in ("nq", "tq")
    }
    return curve.ruled_answers(labelled)["nq and tq"]


@pytest.mark.parametrize("part", ["development", "test"])
def test_ten_percent_of_the_answers_are_enough_for_a_perfect_judge(parts, part):
    threshold, share = curve.smallest(parts[part], errors=0.0)
    assert share <= 0.1
    assert curve.kappa(parts[part], threshold, errors=0.0) >= 0.9


def test_the_probability_is_calibrated_on_the_test_part(parts):
    """In each interval of the certainty, the share of right verdicts is near the certainty."""
    for low, high in ((0.65, 0.8), (0.8, 0.9), (0.9, 0.95), (0.95, 0.99), (0.99, 1.01)):
        answers = [each for each in parts["test"] if low <= each.certainty < high]
        right = sum(each.verdict == each.label for each in answers) / len(answers)
        certainty = sum(each.certainty for each in answers) / len(answers)
        assert right == pytest.approx(certainty, abs=0.1), (low, len(answers))


@given(st.lists(st.tuples(st.booleans(), st.floats(0.5, 1), st.booleans()), min_size=1))
def test_the_cascade_against_a_naive_implementation(rows):
    answers = [curve.RuledAnswer(str(i), *row) for i, row in enumerate(rows)]
    for threshold in (0.5, 0.8, 1.0):
        asked = [row for row in rows if row[1] < threshold]
        assert curve.share(answers, threshold) == len(asked) / len(rows)
        for answer, (verdict, certainty, label) in zip(answers, rows, strict=True):
            expected = verdict if certainty >= threshold else label
            assert answer.decided(threshold, errors=0.0) == expected
            assert answer.judged(1.0) != label


def test_the_errors_of_a_judge():
    answers = [curve.RuledAnswer(str(i), True, 0.5, True) for i in range(4000)]
    wrong = [not answer.judged(0.05) for answer in answers]
    assert sum(wrong) / len(wrong) == pytest.approx(0.05, abs=0.015)
    assert wrong == [not answer.judged(0.05) for answer in answers]
