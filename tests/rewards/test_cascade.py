"""The judge cascade: decisions, needs, details, and attacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

import rag_rewards as rr
from rag_rewards import DataError, Rollout
from rag_rewards.audit.cases import CASES, Case
from rag_rewards.audit.rule_evidence import reward_of
from rag_rewards.definition import Recipe
from rag_rewards.errors import BackendError, RolloutError, SettingError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import JudgeQuestion, Models
from rag_rewards.rewards import AnswerMatch, Outcome
from rag_rewards.rewards.cascade import CERTAINTY, Decision, decide
from rag_rewards.testing import TableJudge
from rag_rewards.text.certainty import rule_verdict

QUESTION = "Which city is it?"
RIGHT = ("Paris", "It is Paris.")
WRONG = ("Rome", "It is Rome.", "", " ")
UNCERTAIN = ("Paris or Rome", "It is not Paris.", "Rome, Paris, Berlin")


def row(answer: str, verdict: int | None = None, answers: object = "Paris") -> Rollout:
    """Return a rollout with the answer in a section and in a box."""
    verdicts = None if verdict is None else {"accuracy": verdict, "outcome": verdict}
    response = f"<answer>{answer}</answer>\\boxed{{{answer}}}"
    return Rollout(response=response, question=QUESTION, answers=answers, verdicts=verdicts)


REWARDS = [AnswerMatch(metric="cascade"), Outcome("cascade")]
by_reward = pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward.name)


@by_reward
def test_rules_decide_certain_answers_without_a_verdict(reward) -> None:
    for answers, correct in ((RIGHT, 1.0), (WRONG, 0.0)):
        for answer in answers:
            assert reward.needs(row(answer)) == []
            for verdict in (None, 0, 1):  # a verdict in the row is ignored
                score = reward([row(answer, verdict)])[0]
                assert (score.correct if reward.name == "outcome" else score.value) == correct
                assert score.details["decided_by"] == "rules"


@by_reward
def test_a_judge_decides_uncertain_answers(reward) -> None:
    for answer in UNCERTAIN:
        (need,) = reward.needs(row(answer))
        assert need.component == reward.name
        assert [question.response for question in need.questions] == [answer]
        for verdict in (0, 1):
            score = reward([row(answer, verdict)])[0]
            assert (score.correct if reward.name == "outcome" else score.value) == verdict
            assert score.details["decided_by"] == "judge"
        with pytest.raises(DataError, match="add the verdict of a judge") as error:
            reward([row(answer)])
        assert error.value.path == f"verdicts.{reward.name}"


def test_details() -> None:
    details = AnswerMatch(metric="cascade")([row("Rome, Paris", 1)])[0].details
    assert details == {
        "answer": "Rome, Paris",
        "decided_by": "judge",
        "rule": "all words",
        "certainty": 0.5,
    }
    details = Outcome("cascade")([row("It is Rome.")])[0].details
    certainty = rule_verdict("It is Rome.", ["Paris"], QUESTION).certainty
    assert details == {
        "answer": "It is Rome.",
        "truth": "incorrect",
        "refused": False,
        "decided_by": "rules",
        "rule": "words missing",
        "certainty": certainty,
    }


def test_truth_values_that_need_no_comparison() -> None:
    outcome = Outcome("cascade")
    cases = {
        "Paris.": ("correct", "exact"),
        "I don't know": ("uncertain", "abstention"),
        "": ("incorrect", "no answer"),
    }
    for answer, (truth, rule) in cases.items():
        details = outcome([row(answer)])[0].details
        assert (details["truth"], details["rule"]) == (truth, rule)
        assert (details["decided_by"], details["certainty"]) == ("rules", 1.0)
    without_box = Rollout(response="Paris", answers="Paris")
    assert outcome([without_box])[0].value == -1.0
    assert outcome.needs(without_box) == []


def test_only_uncertain_answers_are_sent_to_the_judge() -> None:
    judge = TableJudge(lambda question: int("Paris" in question.response))
    texts = [*RIGHT, *UNCERTAIN, *WRONG]
    for reward in REWARDS:
        judge.requests.clear()
        rows = Gatherer(Models(judge=judge)).gather_sync(reward, [row(text) for text in texts])
        assert [question.response for question in judge.requests] == list(UNCERTAIN)
        assert [reward([each])[0].value > 0 for each in rows] == [True] * 5 + [False] * 4


def test_a_failure_of_the_judge_is_an_error_of_the_uncertain_row_only() -> None:
    def fail(question: JudgeQuestion) -> Exception:
        return BackendError("the judge is not available")

    scorer = rr.Scorer.load(
        "arena", {"accuracy.metric": "cascade"}, models=Models(judge=TableJudge(fail))
    )
    rows = [Rollout(**_arena(text)) for text in ("Paris", "Paris or Rome", "Rome")]
    right, uncertain, wrong = scorer.score_each(rows)
    assert isinstance(uncertain, RolloutError)
    assert "the judge is not available" in str(uncertain)
    assert [right.components["accuracy"], wrong.components["accuracy"]] == [1.0, 0.0]


def _arena(answer: str) -> dict[str, object]:
    sections = f"<relevance>[1]</relevance><analysis>x</analysis><answer>{answer}</answer>"
    documents = [rr.Document(text="Paris.")]
    return {"response": sections, "answers": "Paris", "documents": documents, "supporting": [1]}


TEXTS = st.lists(
    st.sampled_from("Paris Rome not or is , . sorry Lyon 1944 Parisian it".split()), max_size=8
).map(" ".join)


@budget(200)
@given(TEXTS, st.floats(0.5, 1), st.floats(0.5, 1))
def test_a_greater_certainty_sends_a_superset_to_the_judge(text, one, other) -> None:
    low, high = sorted((one, other))
    for reward in (AnswerMatch, Outcome):
        for strict in (False, True):
            settings = {"metric" if reward is AnswerMatch else "verifier": "cascade"}
            few = reward(**settings, strict=strict, certainty=low).needs(row(text))
            more = reward(**settings, strict=strict, certainty=high).needs(row(text))
            assert bool(more) >= bool(few)


@budget(200)
@given(TEXTS, st.floats(0.5, 1))
def test_decisions_against_a_naive_implementation(text, certainty) -> None:
    decision = decide(text, row(text), certainty)
    if not text.strip():
        assert decision == Decision(False, 1.0, "no answer")
        return
    verdict = rule_verdict(text, ["Paris"], QUESTION)
    expected = None if verdict.certainty < certainty else verdict.probability >= 0.5
    assert decision == Decision(expected, verdict.certainty, verdict.rule)


def test_the_least_certainty_needs_no_judge_unless_strict() -> None:
    for answer in (*RIGHT, *WRONG, *UNCERTAIN):
        assert AnswerMatch(metric="cascade", certainty=0.5).needs(row(answer)) == []
    for answer in UNCERTAIN:
        assert AnswerMatch(metric="cascade", certainty=0.5, strict=True).needs(row(answer))


def test_several_required_answers() -> None:
    required = (("Paris",), ("Rome",))
    cascade = AnswerMatch(metric="cascade")

    def decision(answer: str) -> bool | None:
        return cascade.decide(row(answer, answers=required), answer).verdict

    assert decision("It is Paris and Rome.") is True
    assert decision("It is Paris.") is False
    assert decision("It is Oslo.") is False
    assert decision("It is Paris, not Rome.") is None


@pytest.mark.parametrize("reward", [AnswerMatch, Outcome])
@pytest.mark.parametrize("certainty", [0.49, 1.01, float("nan")])
def test_a_certainty_outside_its_range_is_an_error(reward, certainty) -> None:
    with pytest.raises(ValueError, match=r"certainty must be from 0\.5 to 1, found"):
        reward(certainty=certainty)


def test_settings_of_recipes() -> None:
    assert rr.recipe("truthrl", {"verifier": "cascade", "certainty": 0.9}).correct is not None
    with pytest.raises(SettingError, match=r"accuracy\.certainty"):
        rr.recipe("arena", {"accuracy.certainty": 0.4})
    hardened = rr.recipe("arena", {"accuracy.metric": "cascade"}, hardened=True)
    assert hardened.correct.strict


# --- attacks -----------------------------------------------------------------------------------

JUDGED = {"truthrl": "verifier"} | dict.fromkeys(
    ("arena", "naive-grpo", "ctrl-rag", "rag-total"), "accuracy.metric"
)
ATTACKS = [case for case in CASES if case.recipe in JUDGED]
BY_DEFINITION = {("arena", 13), ("naive-grpo", 13), ("ctrl-rag", 25)}
"""Attacks that pay by the definition of the paper, whatever decides about the answer."""


def hardened_cascade(case: Case, certainty: float) -> Recipe:
    key = JUDGED[case.recipe]
    scope = key.rpartition("verifier" if key == "verifier" else "metric")[0]
    changes = {key: "cascade", f"{scope}certainty": certainty}
    return rr.recipe(case.recipe, {**case.settings, **changes}, hardened=True)


@pytest.mark.parametrize("case", ATTACKS, ids=lambda case: case.id)
def test_an_attack_does_not_pay_without_the_consent_of_a_judge(case) -> None:
    """A judge that rejects everything shows that the rules accept no attack."""
    perfect: dict[str, object] = {}
    rejecting = {"verdicts": {"accuracy": 0, "outcome": 0}}
    for certainty in (0.5, CERTAINTY):
        recipe = hardened_cascade(case, certainty)
        for verdicts in (perfect, rejecting):
            honest = reward_of(recipe, {**case.honest, **verdicts})
            attacked = reward_of(recipe, {**case.attacked, **verdicts})
            by_definition = (case.recipe, case.attack) in BY_DEFINITION
            assert attacked <= honest + 1e-6 or by_definition
