"""Accuracy according to a judge cascade."""

from __future__ import annotations

import pytest

from rag_rewards.errors import UsageError
from rag_rewards.metrics import metric_of


def row(text: str, verdict: int | None = None) -> dict[str, object]:
    fields = {"response": text, "answers": ["Paris"], "question": "Which city is it?"}
    return fields if verdict is None else fields | {"verdicts": {"accuracy": verdict}}


def test_values(values, reported) -> None:
    rows = [row("It is Paris."), row("Rome, or so", 0), row("Paris or Rome", 1), row("", 1)]
    assert values("cascade", rows) == {"cascade": 0.5, "judge_share": 0.5}
    report = reported("cascade", rows)
    assert report.counts == {"right": 2, "judged": 2, "rows": 4}


def test_a_verdict_is_needed_for_undecided_answers_only(values, reported) -> None:
    rows = [row("It is Paris."), row("not Paris"), row("I don't know.")]
    [error] = reported("cascade", rows).left_out
    assert (error.path, error.count) == ("verdicts.accuracy", 1)


def test_a_verdict_on_doubtful_answers(values, reported) -> None:
    """An answer that only an equivalence explains needs the judge, an equal one does not."""
    rows = [row("It is Paris.", 0), row("Paris", 0)]
    assert values("cascade", rows) == {"cascade": 1.0, "judge_share": 0.0}
    assert values("cascade(undecided=doubtful)", rows) == {"cascade": 0.5, "judge_share": 0.5}
    [error] = reported("cascade(undecided=doubtful)", [row("It is Paris."), row("Paris")]).left_out
    assert (error.path, error.count) == ("verdicts.accuracy", 1)


def test_truthfulness_with_a_cascade(values) -> None:
    texts = (("Paris", None), ("I don't know", None), ("", None), ("Paris or Rome", 1))
    rows = [
        {**row(f"\\boxed{{{text}}}"), "verdicts": {"outcome": verdict}} for text, verdict in texts
    ]
    assert values("truthfulness(verifier=cascade)", rows) == {
        "truthfulness": 0.25,
        "accuracy": 0.5,
        "uncertainty": 0.25,
        "hallucination": 0.25,
        "judge_share": 0.25,
    }
    assert "judge_share" not in values("truthfulness(verifier=exact)", rows)


def boxed(text: str, group: str, **verdicts: int) -> dict[str, object]:
    return {**row(f"\\boxed{{{text}}}"), "group": group, "verdicts": verdicts}


GROUPS = [
    boxed("Paris", "a"),
    boxed("Paris or Rome", "a", outcome=1),
    boxed("", "a"),
    boxed("", "b"),
    boxed("Paris or Bonn", "b", outcome=0),
    boxed("Paris or Bonn", "b", outcome=1),
]


def test_metrics_of_groups_report_the_share_of_the_judge(values) -> None:
    # pass@2 reads 3 rollouts per group (3 of 6 judged), majority@2 the first 2 (2 of 4 judged).
    found = values("pass@2(verifier=cascade)", GROUPS)
    assert found == {"pass@2": pytest.approx((1 + 2 / 3) / 2), "judge_share": 0.5}
    found = values("majority@2(verifier=cascade)", GROUPS)
    assert found["judge_share"] == 0.5
    assert found["majority@2"] == 0.5
    for metric in ("pass@2", "majority@2"):
        assert "judge_share" not in values(f"{metric}(verifier=exact)", GROUPS)


def test_the_reasoning_score_reports_the_share_of_the_judge(values) -> None:
    rows = [boxed("Paris", "a", reasoning=1), boxed("Paris or Rome", "a", reasoning=0, outcome=1)]
    found = values("reasoning-score(verifier=cascade)", rows)
    assert (found["reasoning-score"], found["judge_share"]) == (0.5, 0.5)
    assert "judge_share" not in values("reasoning-score(verifier=exact)", rows)


@pytest.mark.parametrize("metric", ["truthfulness", "pass@1", "majority@1", "reasoning-score"])
def test_each_metric_with_a_verifier_asks_about_doubtful_answers(metric, values) -> None:
    rows = [boxed(text, "a", reasoning=1, outcome=1) for text in ("Paris", "It is Paris.")]
    assert values(f"{metric}(verifier=cascade)", rows)["judge_share"] == 0
    doubtful = values(f"{metric}(verifier=cascade,undecided=doubtful)", rows)
    assert doubtful["judge_share"] == (0 if metric == "majority@1" else 0.5)


@pytest.mark.parametrize("metric", ["cascade", "truthfulness", "pass@2", "reasoning-score"])
def test_another_value_of_ask_is_an_error(metric) -> None:
    with pytest.raises(UsageError, match="undecided: expected one of judge, doubtful, found 'yes'"):
        metric_of(f"{metric}(undecided=yes)")
