"""Agreement with human labels: the counts, and the agreement of the matchers with people."""

from __future__ import annotations

import math
import sys
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rag_rewards as rr
from rag_rewards.calibration.report import calibration_error, reliability_bins
from rag_rewards.metrics.agreement import Agreement, ScoreCounts

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import agreement


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


@given(st.tuples(*[st.integers(0, 40)] * 4).filter(any))
def test_equal_kappas_are_equal_numbers(cells):
    agreement = Agreement(*cells)
    doubled = Agreement(*(3 * cell for cell in cells))
    assert agreement.kappa == doubled.kappa or (isnan(agreement.kappa) and isnan(doubled.kappa))


# --- scores ------------------------------------------------------------------------------------

PAIRS = [(0.9, True), (0.8, True), (0.8, False), (0.6, True), (0.4, False), (0.4, True)]
PAIRS += [(0.1, False), (0.0, False)]

pairs_of_scores = st.lists(
    st.tuples(st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.5, 0.7, 0.95, 1.0]), st.booleans()),
    max_size=30,
)


def naive_auc(pairs):
    yes = [score for score, label in pairs if label]
    no = [score for score, label in pairs if not label]
    wins = sum((y > n) + (y == n) / 2 for y in yes for n in no)
    return wins / (len(yes) * len(no)) if yes and no else math.nan


def naive_agreement(pairs, threshold):
    return Agreement.of((score >= threshold, label) for score, label in pairs)


def same(value, expected):
    return value == pytest.approx(expected, nan_ok=True)


def test_auc_by_hand():
    # 16 pairs: 0.9 wins 4, 0.8 wins 3.5, 0.6 wins 3, 0.4 wins 2.5.
    assert ScoreCounts.of(PAIRS).auc == 13 / 16


@given(pairs_of_scores)
def test_auc_equals_its_definition(pairs):
    assert same(ScoreCounts.of(pairs).auc, naive_auc(pairs))


@given(pairs_of_scores, st.sampled_from([-1.0, 0.0, 0.05, 0.4, 0.95, 1.0, 2.0]))
def test_the_agreement_at_a_threshold(pairs, threshold):
    assert ScoreCounts.of(pairs).at(threshold) == naive_agreement(pairs, threshold)


@given(pairs_of_scores)
def test_the_threshold_with_the_highest_kappa(pairs):
    best = ScoreCounts.of(pairs).best_kappa()
    if len({label for _, label in pairs}) < 2:
        assert best is None
        return
    kappas = {score: naive_agreement(pairs, score).kappa for score, _ in pairs}
    assert naive_agreement(pairs, best).kappa == pytest.approx(max(kappas.values()))
    assert all(kappas[score] < kappas[best] for score in kappas if score > best)


@given(pairs_of_scores, st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
def test_the_threshold_for_a_false_positive_rate(pairs, limit):
    threshold = ScoreCounts.of(pairs).for_false_positive_rate(limit)
    within = {
        score
        for score, _ in pairs
        if naive_agreement(pairs, score).false_positive_rate <= limit  # NaN is not within
    }
    assert threshold == (min(within) if within else None)


def test_ties_are_on_the_same_side_of_a_threshold():
    counts = ScoreCounts.of([(1.0, True), (1.0, False), (0.0, False), (0.0, True)])
    assert counts.for_false_positive_rate(0.4) is None  # the score 1 accepts half of the labels no
    assert counts.for_false_positive_rate(0.5) == 1.0
    assert counts.auc == 0.5


@pytest.mark.parametrize("label", [True, False])
def test_one_class_has_no_auc_and_no_threshold(label):
    counts = ScoreCounts.of([(0.2, label), (0.7, label)])
    assert isnan(counts.auc)
    assert counts.best_kappa() is None
    assert counts.for_false_positive_rate(0.1) is None
    assert isnan(ScoreCounts.of([]).auc)


def test_values_of_scikit_learn():
    """The same values as `sklearn.metrics`, which the extra sentence-transformers installs."""
    metrics = pytest.importorskip("sklearn.metrics")
    scores, labels = zip(*PAIRS, strict=True)
    counts = ScoreCounts.of(PAIRS)
    assert counts.auc == pytest.approx(metrics.roc_auc_score(labels, scores))
    for threshold in {*scores}:
        verdicts = [score >= threshold for score in scores]
        kappa = metrics.cohen_kappa_score(labels, verdicts)
        assert counts.at(threshold).kappa == pytest.approx(kappa)


# --- reliability -------------------------------------------------------------------------------


def naive_calibration_error(pairs, bins):
    total = 0.0
    for place in range(bins):
        members = [p for p in pairs if min(int(p[0] * bins), bins - 1) == place]
        if members:
            mean = sum(score for score, _ in members) / len(members)
            share = sum(label for _, label in members) / len(members)
            total += len(members) / len(pairs) * abs(mean - share)
    return total if pairs else math.nan


def test_reliability_by_hand():
    bins = reliability_bins(ScoreCounts.of(PAIRS), 5)
    assert [(b.low, b.high, b.rows, b.yes_share) for b in bins] == [
        (0.0, 0.2, 2, 0.0),
        (0.4, 0.6, 2, 0.5),
        (0.6, 0.8, 1, 1.0),
        (0.8, 1.0, 3, 2 / 3),
    ]
    # (2·|0.05 − 0| + 2·|0.4 − 0.5| + 1·|0.6 − 1| + 3·|5/6 − 2/3|) / 8
    assert calibration_error(bins) == pytest.approx((0.1 + 0.2 + 0.4 + 0.5) / 8)


@given(pairs_of_scores, st.integers(1, 12))
def test_the_calibration_error_equals_its_definition(pairs, bins):
    found = calibration_error(reliability_bins(ScoreCounts.of(pairs), bins))
    assert same(found, naive_calibration_error(pairs, bins))


@pytest.mark.parametrize("score", [-0.1, 1.5])
def test_scores_that_are_no_probabilities_have_no_reliability_curve(score):
    assert reliability_bins(ScoreCounts.of([(score, True), (0.5, False)])) is None


# --- the matchers ------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "target"), [("nq", 0.78), ("tq", 0.86)])
def test_the_lenient_recipe_agrees_with_people(shared, name, target, step):
    """Every fourth answer, and all of them in a slow test."""
    labels = agreement.read(shared / "data" / "evouna" / f"{name}_half.jsonl")
    recipe = rr.recipe("rag-total", agreement.LENIENT)
    for part in agreement.PARTS:
        rows = [row for row in labels if row.part == part]
        assert len(rows) > 1000
        pairs = [(agreement.is_correct(recipe, row), row.label) for row in rows[::step]]
        assert Agreement.of(pairs).kappa >= target, part
