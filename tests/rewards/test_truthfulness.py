"""TruthRL: truth values, outcomes, and their combination with the reasoning."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, Rollout
from rag_rewards.evidence.judge_needs import VerdictNeed
from rag_rewards.rewards import (
    Outcome,
    Reasoning,
    combine_reasoning,
    geometric_reward,
    outcome_reward,
)

quick = budget(150)
TRUTHS = ("correct", "uncertain", "incorrect")


def test_outcomes():
    assert [outcome_reward(t) for t in TRUTHS] == [1, 0, -1]
    assert [outcome_reward(t, "binary") for t in TRUTHS] == [1, -1, -1]
    for scheme in ("ternary", "binary"):
        assert [outcome_reward(t, scheme, enhanced=True) for t in TRUTHS] == [-1, 1, -1]


@quick
@given(st.sampled_from([-1, 0, 1]), st.sampled_from([0, 1]), st.floats(0, 2))
def test_combinations_against_a_naive_implementation(outcome, reasoning, weight):
    doubled = {(-1, 1): -2, (1, 1): 2}.get((outcome, reasoning), outcome)
    assert combine_reasoning(outcome, reasoning) == doubled
    added = combine_reasoning(outcome, reasoning, "additive", weight)
    assert added == outcome + (weight if reasoning else 0)
    level = 0 if (outcome, reasoning) == (1, 0) else outcome
    assert combine_reasoning(outcome, reasoning, "conditional") == level


def truth(response: str, answers="Paris", *, verdict=None, ook=None, **options):
    verdicts = None if verdict is None else {"outcome": verdict}
    rollout = Rollout(response=response, answers=answers, verdicts=verdicts, out_of_knowledge=ook)
    score = Outcome(**{"verifier": "exact"} | options)([rollout])[0]
    assert score.correct == (1.0 if score.details["truth"] == "correct" else 0.0)
    assert score.details["refused"] == (score.details["truth"] == "uncertain")
    return score.details["truth"]


ANSWERS = st.sampled_from(
    [
        "Paris",
        "paris.",
        "Rome",
        "I don't know",
        "I dont know, maybe Paris",
        "I do not know",
        "I don’t know",
        "invalid question",
        "",
        "not enough information",
    ]
)


@quick
@given(ANSWERS, st.sampled_from(["Paris", "invalid question", "I do not know", "Rome"]))
def test_the_order_of_the_rules_against_a_naive_implementation(text, gold):
    plain = text.lower().replace("’", "'")
    phrases = ["i don't know", "i dont know", "i do not know"]
    if not text:
        expected = "incorrect"
    elif any(p in plain and p not in gold.lower() for p in phrases):
        expected = "uncertain"
    elif plain.strip(".") == gold.lower():
        expected = "correct"
    else:
        expected = "incorrect"
    assert truth(rf"<think>t</think> \boxed{{{text}}}", gold) == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"\boxed{Paris}", "correct"),
        (r"\boxed{Rome} or rather \boxed{Paris}", "correct"),  # the last box
        (r"\boxed{Paris} or rather \boxed{Rome}", "incorrect"),
        (r"<think>\boxed{Paris}</think> I am not sure.", "incorrect"),  # not in thinking
        (r"<think>\boxed{Paris}", "incorrect"),
        ("It is Paris.", "incorrect"),  # no box
        ("I don't know.", "incorrect"),  # abstaining needs a box too
        (r"\boxed{}", "incorrect"),
        (r"\boxed{ }", "incorrect"),
        (r"\boxed{Paris", "incorrect"),
        (r"\boxed{cannot be determined}", "incorrect"),
    ],
)
def test_boxes(response, expected):
    assert truth(response) == expected


def test_the_first_box_ends_at_the_first_brace():
    assert truth(r"<think>\boxed{Paris}</think>", box="first") == "correct"
    assert truth(r"\boxed{Paris} \boxed{Rome}", box="first") == "correct"
    nested = r"\boxed{x^{2}}"
    assert truth(nested, "x^{2") == "correct"  # squad deletes both braces
    rollout = Rollout(response=nested, answers="x")
    assert Outcome(verifier="exact", box="first").answer(rollout) == "x^{2"
    assert Outcome(verifier="exact").answer(rollout) == "x^2"


def test_unwrapping():
    response = r"\boxed{\text{Paris}}"
    assert truth(response) == "correct"
    assert truth(response, unwrap_text=False) == "incorrect"
    assert truth(r"\boxed{330 \mathrm{ m}}", "330 m") == "correct"
    assert truth(r"\boxed{\textbf{I don't know}}", alone=True) == "uncertain"


def test_abstentions_without_other_text():
    assert truth(r"\boxed{Paris, but I don't know}") == "uncertain"
    assert truth(r"\boxed{Paris, but I don't know}", alone=True) == "incorrect"
    assert truth(r"\boxed{I don't know.}", alone=True) == "uncertain"


def test_wider_phrases_are_opt_in():
    wide = ("not enough information",)
    assert truth(r"\boxed{Not enough  information}", phrases=wide) == "uncertain"
    assert truth(r"\boxed{I don't know}", phrases=wide) == "incorrect"


@pytest.mark.parametrize(
    ("verifier", "text", "answers", "expected"),
    [
        ("exact", "the Paris!", "Paris", "correct"),
        ("exact", "in Paris", "Paris", "incorrect"),
        ("substring", "in Paris", "Paris", "correct"),
        ("substring", "in Paris", [["Paris"], ["Rome"]], "incorrect"),
        ("substring", "Paris, Rome", [["Paris"], ["Rome"]], "correct"),
        ("exact", "Rome, Paris", [["Paris"], ["Rome"]], "correct"),
        ("exact", "Rome, Lutetia", [["Paris", "Lutetia"], ["Rome"]], "correct"),
        ("exact", "Paris", [["Paris"], ["Rome"]], "incorrect"),
        ("exact", "Rome, Paris, Bonn", [["Paris"], ["Rome"]], "incorrect"),  # Table 11, rule 8
        ("f1>=0.8", "New York City", "New York", "correct"),  # F1 is 0.8
        ("f1>=0.81", "New York City", "New York", "incorrect"),
        # Mean of F1 1 ("new york") against "york": ⅔, and 0.
        ("f1>=0.33", "New York", [["York"], ["Rome"]], "correct"),
        ("f1>=0.34", "New York", [["York"], ["Rome"]], "incorrect"),
    ],
)
def test_verifiers(verifier, text, answers, expected):
    assert truth(rf"\boxed{{{text}}}", answers, verifier=verifier) == expected


@pytest.mark.parametrize("verifier", ["exact", "substring", "f1>=0.1"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not Paris", "incorrect"),
        ("It is Paris", "correct"),
        ("Paris, Rome or Bonn", "incorrect"),
        ("I don't know", "uncertain"),
    ],
)
def test_only_explained_answers_are_correct_without_a_judge(verifier, text, expected):
    assert truth(rf"\boxed{{{text}}}", verifier=verifier, undecided="wrong") == expected


def test_the_judge():
    judge = {"verifier": "judge"}
    light = r"\boxed{City of Light}"
    assert truth(light, verdict=1, **judge) == "correct"
    assert truth(light, verdict=0, **judge) == "incorrect"
    with pytest.raises(DataError, match=r"verdicts\.outcome: missing"):
        truth(light, **judge)
    # What needs no judge: an exact match, an abstention, no box. A verdict is not looked at then.
    settled = {
        r"\boxed{Paris}": "correct",
        r"\boxed{I don't know}": "uncertain",
        "Paris": "incorrect",
    }
    for response, expected in settled.items():
        assert truth(response, verdict=1, **judge) == expected
        assert truth(response, **judge) == expected
        assert Outcome().needs(Rollout(response=response, answers="Paris")) == []
    assert Outcome().needs(Rollout(response=light, answers="Paris")) == [VerdictNeed("outcome")]
    assert Outcome(verifier="exact").needs(Rollout(response=light, answers="Paris")) == []


def test_invalid_questions():
    text = r"\boxed{This is an Invalid Question}"
    for verifier in ("judge", "exact", "substring", "f1>=0.1"):
        assert truth(text, verifier=verifier) == "incorrect"
        assert truth(text, "invalid question", verifier=verifier) == "correct"


def test_knowledge_enhanced():
    def value(response, ook, scheme="ternary"):
        rollout = Rollout(response=response, answers="Paris", out_of_knowledge=ook)
        reward = Outcome("exact", scheme, knowledge_enhanced=True)
        return reward([rollout])[0].value

    right, unsure, wrong = r"\boxed{Paris}", r"\boxed{I don't know}", r"\boxed{Rome}"
    assert [value(r, True) for r in (right, unsure, wrong)] == [-1, 1, -1]
    assert [value(r, False) for r in (right, unsure, wrong)] == [1, 0, -1]
    assert [value(r, False, "binary") for r in (right, unsure, wrong)] == [1, -1, -1]
    with pytest.raises(DataError, match="out_of_knowledge: missing"):
        value(right, None)


def test_gold_is_required_without_a_box_too():
    with pytest.raises(DataError, match="answers: missing"):
        truth("nothing", None)


def test_unknown_verifiers_are_rejected():
    for verifier in ("f1", "f1>=1.5", "f1>=x", "em"):
        with pytest.raises(
            ValueError, match="verifier must be judge, cascade, exact, substring or f1>=x"
        ):
            Outcome(verifier=verifier)


def test_reasoning_is_a_verdict():
    rollout = Rollout(response="x", verdicts={"reasoning": 1})
    assert Reasoning()([rollout])[0].value == 1.0
    assert Reasoning().needs(rollout) == [VerdictNeed("reasoning")]
    with pytest.raises(DataError, match=r"verdicts\.reasoning: missing"):
        Reasoning()([Rollout(response="x", verdicts={"reasoning": None})])


def test_an_answer_with_a_further_item_is_left_to_the_judge():
    """Table 11, rule 8: the answer contains exactly the items of the gold answer."""
    rollout = Rollout(response=r"\boxed{Rome, Paris, Bonn}", answers=[["Paris"], ["Rome"]])
    [need] = Outcome().needs(rollout)
    assert [question.gold for question in need.questions] == [("all of: Paris; Rome",)]
    assert Outcome(extra="allow").needs(rollout) == []
    same = Rollout(response=r"\boxed{Rome, Paris}", answers=[["Paris"], ["Rome"]])
    assert Outcome().needs(same) == []


CITIES = ("Paris", "Rome", "Bonn", "Oslo")


@quick
@given(st.lists(st.sampled_from(CITIES), min_size=1, max_size=5), st.sets(st.sampled_from(CITIES)))
def test_required_answers_are_compared_as_sets(listed, required):
    if len(required) < 2:
        return
    expected = "correct" if set(listed) == required else "incorrect"
    answers = [[city] for city in sorted(required)]
    assert truth(rf"\boxed{{{', '.join(listed)}}}", answers) == expected


def test_a_blank_response_has_no_reasoning():
    for blank in ("", " \n", "<|im_end|>"):
        rollout = Rollout(response=blank, question="?", answers="x")
        assert Reasoning().needs(rollout) == []
        assert Reasoning()([rollout])[0].value == 0.0


def test_rewards_pickle():
    for reward in (Outcome("f1>=0.5", alone=True), Reasoning()):
        assert pickle.loads(pickle.dumps(reward)) == reward  # noqa: S301


@given(st.floats(0.01, 1), st.floats(0.01, 1))
def test_geometric_rewards(x0, y0):
    def twin(truth, abstain):
        if abstain:
            return y0 if truth == "uncertain" else -x0
        return y0 * (truth == "correct") - x0 * (truth == "incorrect")

    for truth in TRUTHS:
        for abstain in (False, True):
            assert geometric_reward(truth, x0, y0, abstain=abstain) == twin(truth, abstain)
    expected = x0 * geometric_reward("correct", x0, y0) + y0 * geometric_reward("incorrect", x0, y0)
    assert abs(expected) < 1e-12  # of the initial policy on answerable questions


def test_the_scheme_geometric_requires_shares():
    with pytest.raises(ValueError, match="scheme=geometric requires the share of"):
        Outcome(scheme="geometric", correct_rate=0.4)


@pytest.mark.parametrize("undecided", ["match", "wrong"])
@pytest.mark.parametrize("verifier", ["substring", "exact", "judge", "cascade"])
@pytest.mark.parametrize(
    ("box", "expected"), [("🍐", "correct"), ("🍎", "incorrect"), (".", "incorrect")]
)
def test_an_answer_without_letters_can_be_right(verifier, undecided, box, expected):
    response = f"\\boxed{{{box}}}"
    answers = ["pear", "🍐"]
    assert truth(response, answers, verifier=verifier, undecided=undecided) == expected
