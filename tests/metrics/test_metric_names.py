"""Names of metrics: the repr of a metric, and the parser of the command line."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards.errors import UsageError
from rag_rewards.metrics import F1, METRICS, MajorityAtK, TrustScore, metric_of, metrics_of

NAMES = st.sampled_from(sorted(METRICS))
SETTINGS = {
    "gold": st.sampled_from(["auto", "supporting", "documents", "answers"]),
    "dialect": st.sampled_from(["auto", "search-r1", "r1-searcher", "research", "tools"]),
    "normalizer": st.sampled_from(["squad", "lower", "triviaqa", "unicode", "spelling"]),
    "reads": st.sampled_from(["auto", "answer", "box", "response"]),
    "hotpotqa": st.booleans(),
    "component": st.sampled_from(["accuracy", "outcome"]),
    "compared": st.sampled_from(["exact", "f1", "substring"]),
    "undecided": st.sampled_from(["judge", "doubtful"]),
    "verifier": st.sampled_from(["judge", "cascade", "exact", "substring", "f1>=0.5"]),
    "reasoning": st.sampled_from(["think", "analysis"]),
    "threshold": st.floats(0, 1),
    "span": st.sampled_from(["response", "answer"]),
    "empty": st.sampled_from(["zero", "skip"]),
    "markers": st.sampled_from(["all", "first"]),
    "k": st.integers(1, 99),
    "relevant": st.sampled_from(["answers", "supporting"]),
    "length": st.sampled_from(["auto", "words", "characters"]),
    "tokenizer": st.none(),
    "unclosed": st.sampled_from(["missing", "to_end"]),
    "evidence": st.sampled_from(["extract", "response"]),
    "max_words": st.none() | st.integers(1, 99),
    "claims_in": st.sampled_from(["answer", "response"]),
    "claims_by": st.sampled_from(["statements", "judge"]),
    "checked_by": st.sampled_from(["nli", "judge"]),
    "premises": st.sampled_from(["together", "each"]),
    "repeated": st.booleans(),
    "max_citations": st.integers(1, 20),
    "correct_rate": st.floats(0.01, 1),
    "wrong_rate": st.floats(0.01, 1),
} | dict.fromkeys(("w1", "w2", "w3"), st.floats(0, 10))


@given(st.data())
def test_the_repr_can_be_parsed(data):
    metric_type = METRICS[data.draw(NAMES)]
    fields = [field.name for field in dataclasses.fields(metric_type)]
    metric = metric_type(**{name: data.draw(SETTINGS[name]) for name in fields})
    assert metric_of(repr(metric)) == metric


def test_repr():
    assert repr(F1()) == "f1"
    assert repr(F1(hotpotqa=True)) == "f1(hotpotqa=true)"
    assert repr(MajorityAtK(5, verifier="f1>=0.5")) == "majority@5(verifier=f1>=0.5)"
    assert metric_of(" trust-score ( threshold = 0.7 ) ") == TrustScore(threshold=0.7)


def test_lists():
    metrics, by = metrics_of(["em,f1(normalizer=lower,reads=box),em", "by:hops, pass@2"])
    assert list(map(repr, metrics)) == ["em", "f1(normalizer=lower,reads=box)", "pass@2"]
    assert by == ["hops"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recall", "for example recall@8"),
        ("precision", "unknown metric 'precision'"),
        ("exact", "unknown metric"),
        ("em@3", "unknown metric 'em@3'"),
        ("pass", "for example pass@8"),
        ("pass@k", "for example pass@8"),
        ("pass@0", "at least 1"),
        ("recall@0", "at least 1"),
        ("ndcg", "for example ndcg@8"),
        ("ndcg@5(relevant=cited)", "metric ndcg@k: relevant"),
        ("answer-recall(max_words=0)", "max_words must be at least 1, found 0"),
        ("compression-ratio(length=tokens)", "requires a tokenizer"),
        ("compression-ratio(tokenizer=no/folder)", "there is no tokenizer no/folder"),
        ("em(", "NAME(key=value"),
        ("em(x)", "expected key=value"),
        ("em(normaliser=lower)", "did you mean 'normalizer'"),
        ("em(normalizer=upper)", "metric em: normalizer"),
        (
            "cascade(certainty=0.9)",
            "has no setting 'certainty' since version 0.8.0; use 'undecided'",
        ),
        ("truthfulness(certainty=0.9)", "use 'undecided'"),
        ("em(certainty=0.9)", "metric em has no setting 'certainty'; there are: normalizer"),
        ("cascade(undecided=always)", "undecided: expected one of judge, doubtful"),
        ("relevance(x=1)", "it has no settings"),
        ("align(reasoning=<b>)", "must be the name of a section"),
        ("truthfulness(w1=much)", "metric truthfulness: w1"),
        ("", "NAME"),
    ],
)
def test_invalid_names_and_settings(text, message):
    with pytest.raises(UsageError) as raised:
        metric_of(text)
    assert message in str(raised.value)


def test_an_empty_list():
    with pytest.raises(UsageError, match="metrics is empty"):
        metrics_of([" , ", "by:hops"])


def test_the_page_lists_each_metric_with_its_settings():
    page = (Path(__file__).parents[2] / "docs" / "evaluate.md").read_text("utf-8")
    settings = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            settings |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[0]), cells[2])
    assert settings.pop("by:FIELD") == ""
    assert settings.pop("METRIC>=T") == "those of the metric"
    assert [settings.pop(name) for name in ("reward", "correct", "components.NAME")] == [""] * 3
    assert {name.replace("@K", "@k") for name in settings} == set(METRICS)
    for name, metric_type in METRICS.items():
        listed = set(re.findall(r"`(\w+)`", settings[name.replace("@k", "@K")])) - {"f1"}
        expected = {field.name for field in dataclasses.fields(metric_type)} - {"k"}
        assert listed - {"hotpotqa"} == expected - {"hotpotqa"}, name
