"""Recall and NDCG of the first k documents."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.metrics.documents import ndcg_at_k, recall_at_k

quick = budget(150)
RANKINGS = st.lists(st.booleans(), max_size=8)
DOCUMENTS = [
    {"text": text} for text in ("The Rhine.", "Paris lies on the Seine.", "A river: Seine.")
]


@quick
@given(RANKINGS, st.integers(1, 9))
def test_recall_against_its_equation(relevant, k):
    positions = {i for i, is_relevant in enumerate(relevant, start=1) if is_relevant}
    expected = len({i for i in positions if i <= k}) / len(positions) if positions else 0.0
    assert recall_at_k(relevant, k) == pytest.approx(expected)


@quick
@given(RANKINGS, st.integers(1, 9))
def test_ndcg_against_its_equation(relevant, k):
    def dcg(gains):
        return sum(gain / math.log2(i + 1) for i, gain in enumerate(gains, start=1) if i <= k)

    gains = list(map(float, relevant))
    ideal = dcg(sorted(gains, reverse=True))
    expected = dcg(gains) / ideal if ideal else 0.0
    assert ndcg_at_k(relevant, k) == pytest.approx(expected)
    assert 0.0 <= ndcg_at_k(relevant, k) <= 1.0 + 1e-12


@quick
@given(RANKINGS.filter(any), st.integers(1, 9))
def test_the_best_order_has_an_ndcg_of_1(relevant, k):
    assert ndcg_at_k(sorted(relevant, reverse=True), k) == pytest.approx(1.0)


def test_golden_values(values):
    rows = [
        # relevant: 2 and 3. First 2: 1 of 2; DCG 1/log2(3) = 0.630930; ideal 1 + 0.630930
        {"documents": DOCUMENTS, "answers": ["the Seine"]},
        # relevant: 1
        {"documents": DOCUMENTS, "answers": ["Rhine"]},
        # no relevant document: "Sein" is no whole word
        {"documents": DOCUMENTS, "answers": ["Sein"]},
        # one of several required answers is enough
        {"documents": DOCUMENTS, "answers": [["Oise"], ["Rhine"]]},
    ]
    assert values("recall@2", rows) == pytest.approx(
        {"recall@2": (0.5 + 1 + 0 + 1) / 4, "hit": 3 / 4}
    )
    first = 0.630930 / 1.630930
    assert values("ndcg@2", rows) == pytest.approx({"ndcg@2": (first + 1 + 0 + 1) / 4}, abs=1e-6)


def test_supporting_documents(values):
    rows = [
        {"documents": DOCUMENTS, "supporting": [1, 3]},
        {"documents": DOCUMENTS, "supporting": []},
    ]
    assert values("recall@2(relevant=supporting)", rows) == {"recall@2": 0.25, "hit": 0.5}
    # DCG 1; ideal 1 + 0.630930
    assert values("ndcg@2(relevant=supporting)", rows) == pytest.approx(
        {"ndcg@2": 1 / 1.630930 / 2}, abs=1e-6
    )


def test_closed_questions_are_excluded_and_counted(reported):
    rows = [
        {"documents": [{"text": "Yes."}], "answers": ["yes"]},
        {"documents": DOCUMENTS, "answers": ["Seine"]},
    ]
    report = reported("recall@5", rows)
    assert report.values["recall@5"].value == 1.0
    assert report.counts["closed"] == report.counts["rows"] == 1.0
    assert reported("ndcg@5", rows[:1]).values["ndcg@5"].value is None


@pytest.mark.parametrize(
    ("row", "metric", "path"),
    [
        ({"answers": ["x"]}, "recall@5", "documents"),
        ({"documents": DOCUMENTS}, "recall@5", "answers"),
        ({"documents": DOCUMENTS, "answers": ["x"], "answer_kind": "claims"}, "ndcg@5", "answers"),
        ({"documents": DOCUMENTS}, "ndcg@5(relevant=supporting)", "supporting"),
    ],
)
def test_rows_that_cannot_be_measured(reported, row, metric, path):
    report = reported(metric, [row])
    assert [error.path for error in report.left_out] == [path]


def test_rows_need_a_response_if_another_metric_reads_it(run_of):
    rows = [{"documents": DOCUMENTS, "answers": ["Seine"]}]
    assert len(run_of(rows, "recall@5").ids) == 1
    run = run_of(rows, "recall@5", "em")
    assert [error.path for error in run.errors.counts()] == ["response"]
