"""Truthfulness, majority@k and pass@k."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.errors import UsageError
from rag_rewards.metrics import MajorityAtK, PassAtK, Truthfulness, metric_of
from rag_rewards.metrics.metric import read_answer
from rag_rewards.metrics.truth import (
    NO_ANSWER,
    majority,
    pass_at_k,
    truthful_helpfulness,
    truthfulness,
)
from rag_rewards.rewards import Outcome
from rag_rewards.rollout import Rollout

quick = budget(150)


def box(text, group="g", **fields):
    return {"response": f"\\boxed{{{text}}}", "answers": ["Paris"], "group": group, **fields}


NO_BOX = {"response": "Paris", "answers": ["Paris"], "group": "g"}
MIXED = [box("Paris"), box("paris."), box("I don't know"), box("Rome"), NO_BOX]


@quick
@given(*[st.floats(0, 1)] * 3, st.tuples(*[st.floats(0, 5)] * 3))
def test_truthfulness_against_its_equation(accuracy, uncertainty, hallucination, weights):
    shares = (accuracy, uncertainty, hallucination)
    expected = sum(w * x for w, x in zip((*weights[:2], -weights[2]), shares, strict=True))
    assert isclose(truthfulness(*shares, weights), expected, abs_tol=1e-12)


@quick
@given(*[st.floats(0, 1)] * 3, st.floats(0.01, 1))
def test_the_truthful_helpfulness_score_is_a_weighted_truthfulness(x1, y1, x0, y0):
    score = (x1 * y0 - y1 * x0) / y0  # FaithRL
    value = truthfulness(x1, 1 - x1, y1, (1.0, 0.0, x0 / y0))
    assert isclose(value, score, rel_tol=1e-9, abs_tol=1e-9)
    assert isclose(truthful_helpfulness(x1, y1, x0, y0), score, rel_tol=1e-9, abs_tol=1e-9)


def test_the_truthful_helpfulness_score_of_rows(values):
    # 0.4 are right and 0.4 wrong: (0.4·0.3 − 0.4·0.2)/0.3
    result = values("ths(verifier=exact,correct_rate=0.2,wrong_rate=0.3)", MIXED)
    shares = {"accuracy": 0.4, "uncertainty": 0.2, "hallucination": 0.4}
    assert result == pytest.approx({"ths": 0.04 / 0.3, **shares})
    same = values("ths(verifier=exact,correct_rate=0.5,wrong_rate=0.5)", MIXED)
    assert same["ths"] == 0.0
    assert values("ths(verifier=exact,correct_rate=0.5,wrong_rate=0.5)", [])["ths"] is None


@pytest.mark.parametrize(
    "settings", ["", "correct_rate=0.4", "wrong_rate=0.4", "correct_rate=0.4,wrong_rate=0", "x=1"]
)
def test_the_rates_of_the_initial_policy_are_required(settings):
    with pytest.raises(UsageError, match="metric ths"):
        metric_of(f"ths({settings})" if settings else "ths")


def test_truthfulness_of_rows(values):
    result = values("truthfulness(verifier=exact)", MIXED)
    assert result == pytest.approx(
        {"truthfulness": 0.0, "accuracy": 0.4, "uncertainty": 0.2, "hallucination": 0.4}
    )
    weighted = values("truthfulness(verifier=exact,w1=2,w2=0.5,w3=3)", MIXED)
    assert weighted["truthfulness"] == pytest.approx(2 * 0.4 + 0.5 * 0.2 - 3 * 0.4)
    auto = values("truthfulness(verifier=exact,reads=auto)", [NO_BOX])
    assert auto["accuracy"] == 1.0


def test_a_judge_is_needed_without_an_exact_match(values, reported):
    assert values("truthfulness", [box("paris"), NO_BOX, box("i dont know")])["accuracy"] == 1 / 3
    rows = [box("City of Light", verdicts={"outcome": 1})]
    assert values("truthfulness", rows)["accuracy"] == 1.0
    [error] = reported("truthfulness", [box("City of Light")]).left_out
    assert error.path == "verdicts.outcome"


BOXES = st.lists(
    st.sampled_from(
        ["\\boxed{", "\\text{", "\\mathrm {", "{", "}", "Paris", " ", "<think>", "</think>", "\\"]
    ),
    max_size=10,
).map("".join)


@quick
@given(BOXES)
def test_reward_and_metrics_read_the_same_box(text):
    rollout = Rollout(response=text, answers="Paris")
    assert Outcome(verifier="exact").answer(rollout) == read_answer(rollout, "box")


def test_a_command_in_the_box_and_a_further_item_are_the_same_for_reward_and_metric(values):
    both = [["Paris"], ["Rome"]]
    for text, answers, share in (
        (r"\text{Paris}", ["Paris"], 1.0),
        (r"330 \mathrm{m}", ["330 m"], 1.0),
        ("Rome, Paris", both, 1.0),
        (r"\textbf{Rome}, Paris", both, 1.0),
        ("Rome, Paris, Bonn", both, 0.0),
        ("Paris", both, 0.0),
    ):
        row = box(text) | {"answers": answers}
        for metric in ("truthfulness(verifier=exact)", "majority@1", "pass@1"):
            found = values(metric, [row])
            assert found.get("accuracy", next(iter(found.values()))) == share, (text, metric)
        [score] = Outcome(verifier="exact")([Rollout(response=row["response"], answers=answers)])
        assert score.correct == share


VOTES = st.lists(
    st.sampled_from(
        [("a", "correct"), ("b", "incorrect"), ("c", "incorrect"), ("", "uncertain"), NO_ANSWER]
    ),
    min_size=1,
    max_size=9,
)


@quick
@given(VOTES)
def test_majority_against_a_slow_implementation(votes):
    answers = [vote for vote in votes if vote != NO_ANSWER]
    if not answers:
        assert majority(votes) == "incorrect"
        return
    best = max(Counter(answers).values())
    winners = [vote for vote in answers if Counter(answers)[vote] == best]
    assert majority(votes) == winners[0][1]


def test_majority_of_rows(values, reported):
    assert values("majority@5", MIXED) == {
        "majority@5": 1.0,
        "abstention": 0.0,
        "hallucination": 0.0,
    }
    rows = [box("I don't know"), box("Rome"), box("I DON'T KNOW."), box("Paris"), box("Paris")]
    assert values("majority@3", rows)["abstention"] == 1.0  # the first three
    report = reported("majority@4", [*rows, box("Paris", "other")])
    assert report.counts == {"correct": 0.0, "abstained": 1.0, "groups": 1.0}
    assert [(e.unit, e.type, e.count) for e in report.left_out] == [("group", "GroupError", 1)]


@quick
@given(st.integers(1, 9), st.data())
def test_pass_at_k_against_all_combinations(n, data):
    correct, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(combinations(range(n), k))
    slow = sum(any(i < correct for i in draw) for draw in draws) / len(draws)
    assert pass_at_k(n, correct, k) == pytest.approx(slow)


def test_pass_at_k_of_rows(values, reported):
    assert values("pass@2(reads=box)", MIXED)["pass@2"] == pytest.approx(pass_at_k(5, 2, 2))
    rows = [*MIXED, box("Rome", "wrong"), box("Rome", "wrong")]
    assert values("pass@1(reads=box)", rows)["pass@1"] == pytest.approx((0.4 + 0) / 2)
    report = reported("pass@8", rows)
    assert report.values["pass@8"].value is None
    assert [e.count for e in report.left_out] == [2]


def test_a_row_in_error_is_excluded_from_its_group(reported):
    rows = [box("Paris"), box("Rome"), {"response": "x", "group": "g"}]
    report = reported("pass@1", rows)
    assert report.values["pass@1"].value == 0.5
    assert [(e.unit, e.path, e.count) for e in report.left_out] == [("row", "answers", 1)]


def test_rows_without_group_and_question_are_excluded(reported):
    report = reported("pass@1", [{"response": "Paris", "answers": ["Paris"]}])
    assert report.values["pass@1"].value is None
    assert "neither `group` nor `question`" in report.left_out[0].first


@pytest.mark.parametrize("make", [lambda: MajorityAtK(0), lambda: PassAtK(-1)])
def test_k_is_at_least_one(make):
    with pytest.raises(UsageError, match="at least 1"):
        make()


def test_an_unknown_verifier():
    with pytest.raises(UsageError, match="verifier must be"):
        Truthfulness(verifier="guess")
