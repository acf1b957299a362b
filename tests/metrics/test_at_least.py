"""Metrics with a threshold, such as f1>=0.5."""

from __future__ import annotations

import pytest

from rag_rewards.errors import UsageError
from rag_rewards.metrics import F1, AtLeast, metric_of
from rag_rewards.metrics.metric import AnswerCache
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows import ScoredRow


def value(metric, response):
    row = ScoredRow.of(Rollout(response=response, answers=["Paris"]), Score(0.0))
    return metric.gauge(AnswerCache())(row)


@pytest.mark.parametrize(
    ("response", "passes"),
    [("Paris", 1.0), ("Paris, France", 1.0), ("it is Paris, in France", 0.0), ("Rome", 0.0)],
)
def test_a_value_at_the_threshold_passes(response, passes):
    # The F1 of the second response is 2/3.
    assert value(AtLeast(F1(), 2 / 3), response) == (passes, 1.0)


@pytest.mark.parametrize(
    "text",
    ["f1>=0.5", "f1(normalizer=triviaqa)>=0.25", "truthfulness(verifier=f1>=0.8)>=1.0"],
)
def test_the_text_of_a_metric(text):
    metric = metric_of(text)
    assert repr(metric) == metric.name == text
    assert metric_of(repr(metric)) == metric


def test_a_threshold_inside_of_the_settings_belongs_to_them():
    assert not isinstance(metric_of("truthfulness(verifier=f1>=0.8)"), AtLeast)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pass@2>=0.5", "pass@2 has one value per group"),
        ("f1>=1e999", "must be a finite number"),
        ("f1>=high", "a metric must be"),
        ("f2>=0.5", "unknown metric 'f2'"),
        (">=0.5", "a metric must be"),
    ],
)
def test_invalid_metrics(text, message):
    with pytest.raises(UsageError, match=message):
        metric_of(text)
