"""em, f1, substring, judge and reference reliance."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.errors import UsageError
from rag_rewards.metrics import metric_of
from rag_rewards.metrics.answers import hotpotqa_f1
from rag_rewards.metrics.metric import read_answer
from rag_rewards.rewards import Outcome, exact_match, substring_match, token_f1
from rag_rewards.rollout import Rollout
from rag_rewards.text.normalize import squad

quick = budget(100)
TEXTS = st.text(st.sampled_from("ab yesno.A "), max_size=8)


def row(response, answers, **fields):
    return {"response": response, "answers": answers, **fields}


def test_values_of_the_official_scorers(shared, values):
    """Scorers of HotpotQA, ARENA and Search-R1; here, an empty prediction is never right."""
    path = shared / "parity" / "generated" / "answer_metrics.json"
    cases = [
        case for case in json.loads(path.read_text("utf-8"))["answer_metrics"] if case.get("pred")
    ]
    assert len(cases) == 5
    for case in cases:
        rows = [row(f"<answer>{case['pred']}</answer>", [case["gold"]])]
        pairs = {
            "em": case["hotpot_em"],
            "em(normalizer=triviaqa)": case["arena_em"],
            "f1(hotpotqa=true)": case["hotpot_f1_prec_rec"][0],
            "f1": case["musique_f1"],
            "f1(normalizer=triviaqa)": case["arena_f1"],
            "substring": case["searchr1_subem"],
            "substring(normalizer=lower)": case["ragqa_leaderboard_acc"],
        }
        for metric, theirs in pairs.items():
            [ours] = values(metric, rows).values()
            assert ours == pytest.approx(float(theirs)), (metric, case)


@quick
@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS.filter(str.strip), min_size=1)), min_size=1))
def test_means_over_rows_against_slow_implementations(values, cases):
    rows = [row(f"<answer>{text}</answer>", gold) for text, gold in cases]
    for metric, function in (("em", exact_match), ("substring", substring_match), ("f1", token_f1)):
        slow = [function(text.strip(), gold) if text.strip() else 0.0 for text, gold in cases]
        assert values(metric, rows)[metric] == pytest.approx(sum(slow) / len(slow))


@quick
@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_hotpotqa_f1_against_a_slow_implementation(text, aliases):
    def slow(alias):
        a, b = squad(text), squad(alias)
        closed = {"yes", "no", "noanswer"}
        return 0.0 if (a in closed or b in closed) and a != b else token_f1(text, [alias])

    assert hotpotqa_f1(text, aliases, squad) == max(map(slow, aliases))


def test_hotpotqa_closed_answers(values):
    rows = [row("<answer>yes it is</answer>", ["yes"]), row("yes", ["yes"])]
    assert values("f1(hotpotqa=true)", rows) == {"f1": 0.5}
    assert values("f1", rows)["f1"] > 0.5


@pytest.mark.parametrize(
    ("response", "reads", "expected"),
    [
        ("<think>a</think> x <answer>b</answer> \\boxed{c}", "auto", "b"),
        ("<think>\\boxed{a}</think> x \\boxed{\\text{c}}", "auto", "c"),
        ("<think>a</think> x", "auto", " x"),
        ("<think>a <answer>b</answer>", "auto", ""),
        ("x", "answer", None),
        ("x", "box", None),
        ("<answer>b</answer>", "box", None),
        ("<answer>b</answer>", "response", "<answer>b</answer>"),
    ],
)
def test_read_answer(response, reads, expected):
    assert read_answer(Rollout(response=response), reads) == expected


def test_several_required_answers(values):
    both = [["Paris"], ["Rome", "Roma"]]
    rows = [row("Roma, Paris", both), row("Paris", both)]
    assert values("em", rows) == {"em": 0.5}
    assert values("substring", rows) == {"substring": 0.5}
    assert values("f1", [row("Paris", both)]) == {"f1": 0.5}
    assert values("f1(hotpotqa=true)", [row("Paris", both)]) == {"f1": 0.5}


def test_the_accuracy_of_the_leaderboard_with_and_without_thinking(values):
    """A gold answer in the thinking section alone is not an answer."""
    metric = "substring(normalizer=lower)"
    texts = ("It is PARIS.", "<think>Rome?</think>It is **Paris**.", "<think>Paris.</think>Rome.")
    assert [values(metric, [row(text, ["Paris"])])["substring"] for text in texts] == [1, 1, 0]


def test_the_accuracy_of_the_leaderboard_on_its_other_sets(values):
    """PRGB joins required answers by &. PubMedQA has the answers yes, no and maybe."""
    metric = "substring(normalizer=lower)"
    both = [["moon", "satellite"], ["Mars"]]
    texts = ("Mars has a moon.", "Mars and its satellite.", "Mars", "A moon.")
    assert [values(metric, [row(text, both)])["substring"] for text in texts] == [1, 1, 0, 0]
    texts = ("Yes, it does.", "Maybe.", "No.", "It is unknown.")
    assert [values(metric, [row(text, ["no"])])["substring"] for text in texts] == [0, 0, 1, 1]


def test_judge(values, reported):
    rows = [
        row("Paris", ["x"], verdicts={"accuracy": 1, "outcome": 0}),
        row("Rome", ["x"], verdicts={"accuracy": 0, "outcome": 0}),
        row("<think>never ends", ["x"]),
    ]
    assert values("judge", rows) == {"judge": pytest.approx(1 / 3)}
    assert values("judge(component=outcome)", rows) == {"judge": 0.0}
    report = reported("judge", [*rows, row("Bonn", ["x"])])
    [error] = report.left_out
    assert (error.count, error.path, report.units) == (1, "verdicts.accuracy", 3)


def test_the_question_to_the_judge_is_that_of_the_verdict():
    rollout = Rollout(question="?", response="Lutetia", answers=["Paris"], query_time="noon")
    for component in ("accuracy", "outcome"):
        [need] = metric_of(f"judge(component={component})").needs(rollout)
        assert [question.kind for question in need.questions] == [component]
    assert need.questions == Outcome(verifier="judge").needs_of(rollout, "Lutetia")[0].questions
    with pytest.raises(UsageError, match="use the metric reasoning-score"):
        metric_of("judge(component=reasoning)")


def test_rows_without_gold_answers_are_excluded(reported):
    report = reported("em", [row("a", ["a"]), {"response": "b", "id": "q"}, row("c", [])])
    assert report.values["em"].value == 1.0
    assert [(e.type, e.path, e.count) for e in report.left_out] == [("DataError", "answers", 2)]
    assert report.left_out[0].first == "row q: answers: missing"
