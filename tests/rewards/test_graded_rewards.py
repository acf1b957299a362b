"""Rubrics and grades within a group, with judges from a function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rag_rewards as rr
from rag_rewards.compose import Mean
from rag_rewards.errors import (
    BackendError,
    DataError,
    EvidenceError,
    RolloutError,
    RowError,
    SettingError,
    UsageError,
)
from rag_rewards.evidence.protocols import JudgeQuestion, Models
from rag_rewards.groups import group_by_key
from rag_rewards.recipe_object import custom
from rag_rewards.rewards.group_judge import GroupJudge
from rag_rewards.rewards.rubric import EvolvingRubric, Rubric, rubric_value
from rag_rewards.rollout import Criterion, Rollout
from rag_rewards.rows.decoding import decode_row
from rag_rewards.testing import TableJudge

RUBRIC = (
    Criterion(criterion="names the river", weight=2),
    Criterion(criterion="gives the length", weight=1, name="length"),
    Criterion(criterion="insults the reader", weight=-1),
)


def met(question: JudgeQuestion) -> tuple[float, ...]:
    """A judge for whom a response meets a criterion if it contains its last word."""
    words = [criterion.split()[-1] for criterion in question.criteria]
    return tuple(float(word in question.response) for word in words)


def by_length(question: JudgeQuestion) -> tuple[float, ...]:
    """A judge that grades the responses of a group by their length, up to 100 characters."""
    return tuple(min(len(text), 100) / 100 for text in question.responses)


def run(reward: Any, rows: list[Rollout], judge: Any = None) -> tuple[list[Any], list[Any]]:
    """Return the rewards or errors of rows, and the rows with their evidence."""
    with rr.Scorer(custom("own", reward), Models(judge=judge)) as scorer:
        groups = group_by_key(rows)
        informed = scorer.gather(rows, groups)
        scores = scorer.score_each(informed, groups)
    return [getattr(each, "value", each) for each in scores], informed


# --- rubrics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", ".", "[1] …"])
def test_a_response_without_a_word_gets_nothing(text: str) -> None:
    """It is brief and cites the document, but says nothing."""
    judge = TableJudge(met)
    brief = Rubric((*RUBRIC, Criterion(max_words=9), Criterion(cites=(1,))))
    rows = [decode_row({"question": "?", "documents": [{"text": "a"}], "response": text})]
    assert run(brief, rows, judge)[0] == run(GroupJudge(), rows, judge)[0] == [0.0]
    assert not judge.requests


GRADES = st.lists(st.tuples(st.floats(0, 1), st.integers(-5, 5)), min_size=1, max_size=6)


@given(GRADES, st.booleans())
def test_the_value_of_a_rubric_is_the_weighted_mean(
    pairs: list[tuple[float, int]], clip: bool
) -> None:
    grades, weights = [s for s, _ in pairs], [float(w) for _, w in pairs]
    positive = sum(w for w in weights if w > 0)
    if not positive:
        with pytest.raises(ValueError, match="positive weight"):
            rubric_value(grades, weights, clip=clip)
        return
    value = sum(s * w for s, w in pairs) / positive
    expected = max(0.0, min(1.0, value)) if clip else value
    assert rubric_value(grades, weights, clip=clip) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("the river is long", 2 / 3),
        ("river, length", 1.0),
        ("river, length, reader", 2 / 3),
        ("reader", 0.0),
        (" ", 0.0),
    ],
)
def test_the_grades_of_a_judge_become_a_reward(response: str, value: float) -> None:
    row = Rollout(response=response, question="Which?", rubric=RUBRIC)
    [reward], [informed] = run(Rubric(), [row], TableJudge(met))
    assert reward == pytest.approx(value)
    assert run(Rubric(), [informed])[0] == [reward]  # without a judge


@pytest.mark.parametrize(("per_call", "calls"), [(50, 1), (6, 1), (4, 2), (1, 6)])
def test_criteria_share_calls(per_call: int, calls: int) -> None:
    rubric = tuple(Criterion(criterion=f"states {i}", name=f"c{i}") for i in range(6))
    judge = TableJudge(met)
    row = Rollout(response="states 0 and 4", question="q", rubric=rubric)
    [reward], [informed] = run(Rubric(criteria_per_call=per_call), [row], judge)
    assert reward == pytest.approx(2 / 6)
    assert informed.verdicts["rubric"] == {f"c{i}": float(i in (0, 4)) for i in range(6)}
    assert len(judge.requests) == calls


@pytest.mark.parametrize(
    ("rule", "response", "grade"),
    [
        ({"contains": "SEINE"}, "the Seine", 1),
        ({"contains": ("Rhine", "seine")}, "the Seine", 1),
        ({"contains": ("Rhine",)}, "the Seine", 0),
        ({"max_words": 2}, "the Seine", 1),
        ({"max_words": 2}, "in the Seine", 0),
        ({"cites": (1,)}, "the Seine [1][2]", 1),
        ({"cites": ("x", 2)}, "the Seine [1][2]", 1),
        ({"cites": (2,)}, "the Seine [1]", 0),
    ],
)
def test_a_rule_needs_no_judge(rule: dict[str, Any], response: str, grade: float) -> None:
    documents = ({"id": "x", "text": "one"}, {"id": "y", "text": "two"})
    row = decode_row({"response": response, "documents": documents, "rubric": [rule]})
    assert run(Rubric(), [row])[0] == [grade]


def test_criteria_of_all_rows_are_components() -> None:
    reward = Rubric(criteria=RUBRIC)
    [scored] = reward([Rollout(response="", question="q")])
    assert scored.components == {"1": 0, "length": 0, "3": 0}
    with pytest.raises(DataError, match=r"for each of \w{16}, length, \w{16}, or set"):
        reward([Rollout(response="x", question="q")])


def test_the_grade_of_a_criterion_without_a_name_counts_for_its_text_only() -> None:
    row = Rollout(response="the river", question="q", rubric=RUBRIC)
    [reward], [informed] = run(Rubric(), [row], TableJudge(met))
    moved = msgspec.structs.replace(informed, rubric=RUBRIC[::-1])
    assert run(Rubric(), [moved])[0] == [reward]
    other = (Criterion(criterion="names the delta", weight=2), *RUBRIC[1:])
    for reward, rubric in ((Rubric(), other), (Rubric(best=4), RUBRIC)):
        changed = msgspec.structs.replace(informed, rubric=rubric)
        [error], _ = run(reward, [changed])
        assert isinstance(error, DataError)


def test_an_unknown_document_of_a_setting_or_of_a_search() -> None:
    rule = Rubric(criteria=(Criterion(cites=("9",)),))
    with pytest.raises(DataError, match=r"criteria\[0\].cites: document '9' does not exist"):
        rule([Rollout(response="Yes [1].", documents=["one"])])
    turns = [{"text": "a", "results": [{"id": "1", "text": "one"}]}, {"text": "Yes [1]."}]
    assert rule([decode_row({"turns": turns})])[0].value == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Rubric(criteria=RUBRIC[:1]), Rubric(criteria=RUBRIC[1:2])),
        (Rubric(), Rubric(best=4)),
        (GroupJudge(), GroupJudge(best=4)),
        (GroupJudge(), GroupJudge(orders=2)),
        (Rubric(name="group"), GroupJudge()),
    ],
)
def test_two_rewards_of_one_name_share_no_grades(first: Any, second: Any) -> None:
    rows = members(["the river"], rubric=RUBRIC[:2])
    judge = TableJudge(lambda q: by_length(q) if q.responses else met(q))
    with pytest.raises(UsageError, match="give each its own name"):
        run(Mean((first, second)), rows, judge)
    rewards, _ = run(Mean((first, replace(second, name="other"))), rows, judge)
    assert isinstance(rewards[0], float)
    assert run(Mean((first, replace(first))), rows, judge)[0] == run(first, rows, judge)[0]


def test_an_evolving_rubric_without_a_maximum_is_the_rubric() -> None:
    rubric = tuple(msgspec.structs.replace(each, adaptive=True) for each in RUBRIC)
    rows = [Rollout(response=r, question="q", rubric=rubric) for r in ("river", "river, length")]
    _, informed = run(Rubric(), rows, TableJudge(met))
    assert EvolvingRubric(Rubric())(informed) == Rubric()(informed)
    assert EvolvingRubric(Rubric()).scope == "rollout"
    assert [each.value for each in EvolvingRubric(Rubric(), max_active=1)(informed)] == [0, 1]


# --- groups --------------------------------------------------------------------------------------

TEXTS = [
    "short",
    "a longer response",
    "the longest response of all of them",
    "short",
    " ",
    "mid one",
]


def members(texts: list[str], **more: Any) -> list[Rollout]:
    return [Rollout(response=text, question="q", group="g", **more) for text in texts]


@given(st.permutations(range(len(TEXTS))), st.integers(1, 4))
def test_a_group_is_judged_in_orders_that_do_not_depend_on_the_input(
    order: list[int], orders: int
) -> None:
    judge = TableJudge(by_length)
    rewards, _ = run(GroupJudge(orders=orders), members([TEXTS[i] for i in order]), judge)
    expected_rewards = [0 if TEXTS[i] == " " else len(TEXTS[i]) / 100 for i in order]
    assert rewards == pytest.approx(expected_rewards)
    expected = TableJudge(by_length)
    run(GroupJudge(orders=orders), members(TEXTS), expected)
    assert judge.requests == expected.requests
    assert len(judge.requests) == orders
    assert all(sorted(q.responses) == sorted({*TEXTS} - {" "}) for q in judge.requests)


def test_every_second_order_is_reversed_and_the_mean_counts() -> None:
    def by_place(question: JudgeQuestion) -> tuple[float, ...]:
        return tuple((i + 1) / 8 for i in range(8))

    judge = TableJudge(by_place)
    rows = members([f"response {i}" for i in range(8)])
    rewards, informed = run(GroupJudge(orders=2), rows, judge)
    first, second = judge.requests
    assert first.responses == second.responses[::-1]
    assert rewards == [4.5 / 8] * 8
    with rr.Scorer(custom("own", GroupJudge(orders=2)), Models()) as scorer:
        spreads = [each.details["spread"] for each in scorer.score_each(informed)]
    assert sorted(spreads) == pytest.approx(
        [1 / 8, 1 / 8, 3 / 8, 3 / 8, 5 / 8, 5 / 8, 7 / 8, 7 / 8]
    )
    run(GroupJudge(orders=1), rows, alone := TableJudge(by_place))
    assert len(alone.requests) == 1


def test_a_stored_grade_counts_in_its_own_group_only() -> None:
    rows = members(["one", "three", "fifteen"])
    rewards, informed = run(GroupJudge(), rows, TableJudge(by_length))
    assert run(GroupJudge(), informed[::-1])[0] == rewards[::-1]  # replay without a judge
    idle = TableJudge(lambda _: None)
    assert run(GroupJudge(), informed, idle)[0] == rewards
    assert not idle.requests
    errors, _ = run(GroupJudge(), informed[:2])
    assert all("of a group with other responses" in str(error) for error in errors)
    again = TableJudge(by_length)
    assert run(GroupJudge(), informed[:2], again)[0] == rewards[:2]
    assert len(again.requests) == 1


def test_a_grade_in_fewer_orders_is_requested_again() -> None:
    rows = members(["one", "three"])
    rewards, informed = run(GroupJudge(orders=2), rows, TableJudge(by_length))
    for i, own in enumerate(informed):
        verdict = own.verdicts["group"] | {"orders": [rewards[i]] * 2}  # not a tuple
        rows[i] = msgspec.structs.replace(own, verdicts={"group": verdict})
    for orders, asks in ((1, False), (2, False), (3, True)):
        judge = TableJudge(by_length)
        assert run(GroupJudge(orders=orders), rows, judge)[0] == pytest.approx(rewards)
        assert bool(judge.requests) == asks


def test_a_group_shows_the_documents_that_all_members_have() -> None:
    rows = [
        decode_row(
            {
                "response": f"r{i}",
                "question": "q",
                "group": "g",
                "documents": ["shared", f"own {i}"],
            }
        )
        for i in range(3)
    ]
    judge = TableJudge(by_length)
    run(GroupJudge(), rows, judge)
    assert [question.documents for question in judge.requests] == [("shared",)]


def test_one_failure_makes_the_group_unscored() -> None:
    def judge(question: JudgeQuestion) -> Any:
        return BackendError("HTTP 500") if "three" in question.responses else by_length(question)

    rows = [*members(["one", "three"]), Rollout(response="alone", question="q")]
    rewards, _ = run(GroupJudge(), rows, TableJudge(judge))
    assert [isinstance(each, BackendError) for each in rewards] == [True, True, False]
    rewards, _ = run(
        Rubric(),
        members(["one", "three"], rubric=RUBRIC),
        TableJudge(lambda q: BackendError("HTTP 500") if q.response == "three" else met(q)),
    )
    assert all(isinstance(each, RolloutError) for each in rewards)


@pytest.mark.parametrize(
    ("texts", "shown", "rewards"),
    [
        (["only one"], [("only one",)], [0.08]),
        (["same", "same"], [("same",)], [0.04, 0.04]),
        (["", " \n"], [], [0, 0]),
        (["", "one"], [("one",)], [0, 0.03]),
    ],
)
def test_small_groups(texts: list[str], shown: list[Any], rewards: list[float]) -> None:
    judge = TableJudge(by_length)
    assert run(GroupJudge(orders=3), members(texts), judge)[0] == pytest.approx(rewards)
    assert [question.responses for question in judge.requests] == shown


# --- invalid input -------------------------------------------------------------------------------

C = {"criterion": "is right", "name": "right"}
BAD = "verdicts.rubric.right: a grade must be a number from 0 to 1, found"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "rubric: missing; list criteria"),
        ({"rubric": []}, "rubric: contains no criterion"),
        ({"rubric": [{**C, "weight": 0}]}, "rubric: no criterion has a positive weight"),
        ({"rubric": [{**C, "weight": -1}]}, "rubric: no criterion has a positive weight"),
        ({"rubric": [{**C, "weight": 1e300}]}, "rubric: the weight of criterion 1 must be 0 or"),
        ({"rubric": [{**C, "weight": "2"}]}, "rubric[0].weight: expected float, found str"),
        (
            {"rubric": [{"criterion": "is right"}] * 2},
            "rubric: the criterion 'is right' is repeated",
        ),
        (
            {"rubric": [{"criterion": f"c{i}"} for i in range(200)]},
            "rubric: has 200 criteria, at m",
        ),
        (
            {"rubric": [{"criterion": "a"}, {"criterion": "b", "name": "1"}]},
            "rubric: several criteria have the name",
        ),
        ({"rubric": [{"criterion": " "}]}, "rubric: criterion 1 has no text"),
        ({"rubric": [{"max_words": 0}]}, "rubric: criterion 1 has an empty rule max_words"),
        *(
            ({"rubric": [{"contains": each}]}, "rubric: criterion 1 has an empty rule contains")
            for each in ("", "  ", [], ["", "zzz"])
        ),
        *(
            ({"rubric": [{"cites": each}]}, "rubric: criterion 1 has an empty rule cites")
            for each in ([], [""], [1, " "])
        ),
        ({"rubric": [{"max_words": -3}]}, "rubric: max_words of criterion 1 must be 1 or more"),
        (
            {"rubric": [{"max_words": 3}, {"cites": [1, "9"]}], "documents": ["one", "two"]},
            "rubric[1].cites: document '9' does not exist (documents: 1, 2)",
        ),
        (
            {"rubric": [{"max_words": 3, "contains": "x"}]},
            "the rules contains and max_words: choose",
        ),
        ({"rubric": [{"text": "x"}]}, "rubric[0]: Object contains unknown field text"),
        ({"rubric": [C]}, "verdicts.rubric: missing; add a grade from 0 to 1 for each of r"),
        ({"rubric": [C], "verdicts": {"rubric": 1}}, "verdicts.rubric: missing; add a grade"),
        (
            {"rubric": [C], "verdicts": {"rubric": {"1": 1}}},
            "verdicts.rubric: missing; add a grade",
        ),
        ({"rubric": [C], "verdicts": {"rubric": {"right": 2}}}, f"{BAD} 2"),
        ({"rubric": [C], "verdicts": {"rubric": {"right": -0.5}}}, f"{BAD} -0.5"),
        ({"rubric": [C], "verdicts": {"rubric": {"right": "high"}}}, f"{BAD} 'high'"),
    ],
)
def test_invalid_rubrics_are_errors(fields: dict[str, Any], message: str) -> None:
    try:
        [error], _ = run(Rubric(), [decode_row({"response": "r", "question": "q", **fields})])
    except RowError as caught:
        error = caught
    assert isinstance(error, (RowError, DataError, EvidenceError))
    assert message in str(error)


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ((Criterion(criterion="c", weight=-1),), "no criterion has a positive weight"),
        ((Criterion(criterion="c", name="rubric"),), "'rubric' is that of the whole rubric"),
        ((Criterion(criterion="c"),) * 2, "is repeated|several criteria"),
    ],
)
def test_invalid_criteria_of_all_rows_are_errors(criteria: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Rubric(criteria=criteria)


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        ({"grade": 3}, "verdicts.group.grade: a grade must be a number from 0 to 1, found 3"),
        ({"grade": "x"}, "verdicts.group.grade: a grade must be a number"),
        ({"orders": [0.5, 7]}, "verdicts.group.orders[1]: a grade must be a number"),
        ({"group": "other"}, "verdicts.group: missing, of a group with other responses"),
        ({"group": 3}, "verdicts.group: missing, of a group with other responses"),
        ({"orders": []}, "verdicts.group: missing, of a group with other responses"),
        ({"orders": "all"}, "verdicts.group: missing, of a group with other responses"),
    ],
)
def test_invalid_grades_of_groups_are_errors(verdict: dict[str, Any], message: str) -> None:
    _, [informed] = run(GroupJudge(), members(["one"]), TableJudge(by_length))
    stored = {**informed.verdicts["group"], **verdict}
    row = decode_row({"response": "one", "question": "q", "verdicts": {"group": stored}})
    [error], _ = run(GroupJudge(), [row])
    assert message in str(error)
