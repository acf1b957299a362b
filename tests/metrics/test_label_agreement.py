"""κ, error rates and AUC with intervals."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_rewards.metrics.agreement import Labelled, ScoreCounts, figures
from rag_rewards.metrics.intervals import Resampling, interval, poisson_weights


def of(scores, labels, prompts=None, threshold=0.5, resamples=50):
    labelled = Labelled(scores, labels, prompts or range(len(scores)))
    return figures(labelled, labelled.counts, threshold, Resampling(resamples))


def naive_interval(scores, labels, prompts, value, resamples):
    """Return the interval of a value by repeating each row as often as its prompt is drawn."""
    rng = random.Random(0)
    order = list(dict.fromkeys(prompts))
    values = []
    while len(values) < resamples:
        times = list(map(int, poisson_weights(rng, len(order))))
        if not any(times):
            continue
        pairs = [
            (score, label)
            for score, label, prompt in zip(scores, labels, prompts, strict=True)
            for _ in range(times[order.index(prompt)])
        ]
        number = value(ScoreCounts.of(pairs))
        values.append(None if number != number else number)
    return interval(values)


rows = st.lists(
    st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]), st.booleans(), st.integers(0, 5)),
    min_size=1,
    max_size=20,
)


@settings(max_examples=30)
@given(rows)
def test_intervals_equal_those_of_repeated_rows(found):
    scores, labels, prompts = map(list, zip(*found, strict=True))
    result = of(scores, labels, prompts)
    values = {
        "kappa": lambda counts: counts.at(0.5).kappa,
        "precision": lambda counts: counts.at(0.5).precision,
        "recall": lambda counts: counts.at(0.5).recall,
        "false_positive_rate": lambda counts: counts.at(0.5).false_positive_rate,
        "false_negative_rate": lambda counts: counts.at(0.5).false_negative_rate,
        "auc": lambda counts: counts.auc,
    }
    for name, value in values.items():
        figure = getattr(result, name)
        expected = value(ScoreCounts.of(zip(scores, labels, strict=True)))
        if expected != expected:
            assert figure.value is None
            assert figure.reason
            continue
        assert figure.value == pytest.approx(expected)
        ends = naive_interval(scores, labels, prompts, value, 50)
        assert (figure.low, figure.high) == (pytest.approx(ends) if ends else (None, None))


def test_the_interval_of_the_auc_of_many_scores():
    rng = random.Random(1)
    labels = [rng.random() < 0.6 for _ in range(100)]
    scores = [rng.gauss(0.7 if label else 0.4, 0.2) for label in labels]
    result = of(scores, labels).auc
    ends = naive_interval(scores, labels, range(100), lambda counts: counts.auc, 50)
    assert (result.low, result.high) == pytest.approx(ends)


@pytest.mark.parametrize(
    ("scores", "labels", "reasons"),
    [
        ([], [], ["no row with a label and a score"] * 4),
        ([0.1, 0.9], [True, True], ["", "no row has the label no", "", "the label no"]),
        ([0.1, 0.9], [False, False], ["", "", "no row has the label yes", "the label yes"]),
        ([0.9, 0.9], [True, True], ["all verdicts and all labels are equal", "no", "", "no"]),
    ],
)
def test_numbers_that_are_not_defined(scores, labels, reasons):
    result = of(scores, labels)
    shown = result.kappa, result.false_positive_rate, result.false_negative_rate, result.auc
    for figure, reason in zip(shown, reasons, strict=True):
        assert (figure.value is None) == bool(reason)
        assert reason in figure.reason


def test_without_a_threshold():
    result = of([0.1, 0.9], [False, True], threshold=None)
    assert result.kappa.reason == "there is no threshold"
    assert result.auc.value == 1.0
    assert result.counts == {}
