"""The reasoning score against its definition: shares of accepted reasoning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import Rollout, recipe
from rag_rewards.errors import UsageError
from rag_rewards.metrics import ReasoningScore, Truthfulness, metric_of
from rag_rewards.rewards import Reasoning

BOXES = {"correct": "Paris", "uncertain": "I don't know", "incorrect": "Rome"}


def row(truth, reasoning, **fields):
    response = f"<think>t</think> \\boxed{{{BOXES[truth]}}}"
    verdicts = {"reasoning": reasoning, "outcome": 0}
    return {"response": response, "answers": ["Paris"], "verdicts": verdicts, **fields}


def test_golden_values(values):
    # TruthRL, section 4.6, in small: accurate 3 of 4, uncertain 0 of 1, hallucinated 1 of 5.
    rows = [row("correct", each) for each in (1, 1, 1, 0)] + [row("uncertain", 0)]
    rows += [row("incorrect", each) for each in (1, 0, 0, 0, 0)]
    assert values("reasoning-score", rows) == pytest.approx(
        {"reasoning-score": 0.4, "correct": 0.75, "uncertain": 0.0, "incorrect": 0.2}
    )


@budget(60)
@given(st.lists(st.tuples(st.sampled_from(sorted(BOXES)), st.sampled_from([0, 1])), min_size=1))
def test_against_a_naive_implementation(values, pairs):
    found = values("reasoning-score", [row(*pair) for pair in pairs])
    assert found["reasoning-score"] == pytest.approx(sum(r for _, r in pairs) / len(pairs))
    for truth in BOXES:
        own = [r for each, r in pairs if each == truth]
        assert found[truth] == (pytest.approx(sum(own) / len(own)) if own else None)


def test_the_judge_gets_the_same_question_as_for_the_reward():
    fields = row("incorrect", None, question="Capital of France?", query_time="noon")
    rollout = Rollout(**fields | {"verdicts": None})
    reasoning, outcome = metric_of("reasoning-score").needs(rollout)
    [own] = Reasoning().needs(rollout)
    assert reasoning.questions == own.questions
    [question] = reasoning.questions
    assert (question.kind, question.gold) == ("reasoning", ("Paris",))
    assert question.response == rollout.response  # with the thinking
    assert [outcome] == list(Truthfulness().needs(rollout))
    settings = {"reasoning.combine": "multiplicative"}
    needs = recipe("truthrl", settings).needs(rollout)
    assert {need.component for need in needs} == {"outcome", "reasoning"}


def test_rows_without_a_verdict_are_excluded(reported):
    missing = row("correct", 1) | {"verdicts": None}
    report = reported("reasoning-score", [row("correct", 1), missing])
    assert [(each.path, each.count) for each in report.left_out] == [("verdicts.reasoning", 1)]
    assert report.values["reasoning-score"].value == 1.0


def test_a_blank_response_scores_0(values):
    blank = {"response": " ", "answers": ["Paris"]}
    assert values("reasoning-score", [blank])["reasoning-score"] == 0.0


def test_settings(values):
    rows = [{"response": "It is Paris.", "answers": ["Paris"], "verdicts": {"reasoning": 1}}]
    found = values("reasoning-score(verifier=substring,reads=response)", rows)
    assert (found["correct"], found["incorrect"]) == (1.0, None)
    with pytest.raises(UsageError, match="verifier must be"):
        ReasoningScore(verifier="guess")
