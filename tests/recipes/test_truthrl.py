"""TruthRL: rows with values that were computed by hand from sections 3.2 and 4.6."""

from __future__ import annotations

import pytest

from rag_rewards import DataError, SettingError, recipe
from rag_rewards.rollout import Rollout
from rag_rewards.training.advantages import zscores
from rag_rewards.training.credit import faithful_advantages

RIGHT, UNSURE, WRONG = r"\boxed{Paris}", r"\boxed{I don't know}", r"\boxed{Rome}"
ALIKE = r"\boxed{City of Light}"


def score(text, *, settings=None, hardened=False, **row):
    row = {"answers": ["Paris", "Lutetia"]} | row
    return recipe("truthrl", settings, hardened=hardened)([Rollout(response=text, **row)])[0]


# (response, verdict, ternary, binary, correct)
GOLDEN = [
    ("<think>t</think> " + RIGHT, None, 1, 1, 1),
    (r"\boxed{the lutetia.}", None, 1, 1, 1),
    (UNSURE, None, 0, -1, 0),
    (r"\boxed{I DON’T KNOW!}", None, 0, -1, 0),
    (r"\boxed{I do not know}", None, 0, -1, 0),
    (r"\boxed{Paris? I don't know}", None, 0, -1, 0),  # abstained comes first
    (WRONG, 0, -1, -1, 0),
    (ALIKE, 1, 1, 1, 1),
    (ALIKE, 0, -1, -1, 0),
    (f"{WRONG} no: {RIGHT}", None, 1, 1, 1),  # the last box
    (f"<think>{RIGHT}</think>", None, -1, -1, 0),
    ("Paris", None, -1, -1, 0),  # no box
    ("", None, -1, -1, 0),
    (r"\boxed{not enough information}", 0, -1, -1, 0),
    (r"\boxed{invalid question}", None, -1, -1, 0),
]


@pytest.mark.parametrize(("text", "verdict", "ternary", "binary", "correct"), GOLDEN)
def test_golden_rows(text, verdict, ternary, binary, correct):
    verdicts = None if verdict is None else {"outcome": verdict}
    for scheme, reward in (("ternary", ternary), ("binary", binary)):
        result = score(text, settings={"scheme": scheme}, verdicts=verdicts)
        assert result.components == {"outcome": reward}
        assert (result.value, result.correct) == (reward, correct)


def test_an_abstention_and_a_hallucination_in_one_group():
    """The example of section 3.2: only the ternary reward prefers the abstention."""
    rewards = {
        scheme: [
            score(text, settings={"scheme": scheme, "verifier": "exact"}).value
            for text in (UNSURE, WRONG)
        ]
        for scheme in ("binary", "ternary")
    }
    assert rewards == {"binary": [-1, -1], "ternary": [0, -1]}
    # mean −½, standard deviation ½
    assert zscores(rewards["ternary"]) == pytest.approx([1, -1])
    assert zscores(rewards["binary"]) == [0, 0]


def test_gold_that_is_an_abstention_or_an_invalid_question():
    song = "I Don't Know How to Love Him"
    assert score(UNSURE, answers=song, verdicts={"outcome": 0}).value == -1
    assert score(r"\boxed{I don't know why}", answers="I don't know why").value == 1
    assert score(r"\boxed{Invalid question.}", answers="invalid question").value == 1


@pytest.mark.parametrize(("scheme", "expected"), [("ternary", (1, 0, -1)), ("binary", (1, -1, -1))])
def test_knowledge_enhanced(scheme, expected):
    settings = {"knowledge_enhanced": True, "scheme": scheme, "verifier": "exact"}

    def rewards(ook):
        return tuple(
            score(text, settings=settings, out_of_knowledge=ook).value
            for text in (RIGHT, UNSURE, WRONG)
        )

    assert rewards(False) == expected
    assert rewards(True) == (-1, 1, -1)
    assert score(RIGHT, settings=settings, out_of_knowledge=True).correct == 1
    with pytest.raises(DataError, match="out_of_knowledge: missing"):
        rewards(None)


# (combine, rewards of right, unsure, wrong; each with bad and good reasoning)
COMBINED = [
    ("multiplicative", [1, 2, 0, 0, -1, -2]),
    ("additive", [1, 1.5, 0, 0.5, -1, -0.5]),
    ("conditional", [0, 1, 0, 0, -1, -1]),
]


@pytest.mark.parametrize(("combine", "expected"), COMBINED)
def test_reasoning(combine, expected):
    settings = {"reasoning.combine": combine, "verifier": "exact"}
    result = [
        score(text, settings=settings, verdicts={"reasoning": verdict})
        for text in (RIGHT, UNSURE, WRONG)
        for verdict in (0, 1)
    ]
    assert [f.value for f in result] == expected
    assert [f.components["reasoning"] for f in result] == [0, 1] * 3
    assert [f.components["outcome"] for f in result] == [1, 1, 0, 0, -1, -1]
    assert [f.correct for f in result] == [1, 1, 0, 0, 0, 0]


def test_the_weight_of_the_reasoning():
    settings = {"combine": "additive", "reasoning.weight": 0.25}
    assert score(RIGHT, settings=settings, verdicts={"reasoning": 1}).value == 1.25


def test_the_formula_of_the_combination():
    def equation(**settings):
        return recipe("truthrl", {"combine": "multiplicative"} | settings).equation

    assert recipe("truthrl").equation == "outcome"
    assert equation() == "outcome·(1 + reasoning)"
    assert equation(combine="additive") == "outcome + 0.5·reasoning"
    assert equation(combine="conditional") == "outcome·reasoning if outcome > 0 else outcome"


def test_missing_verdicts():
    with pytest.raises(DataError, match=r"verdicts\.outcome: missing"):
        score(ALIKE)
    with pytest.raises(DataError, match=r"verdicts\.reasoning: missing"):
        score(RIGHT, settings={"reasoning.combine": "multiplicative"})


@pytest.mark.parametrize(
    ("verifier", "value"),
    [
        ("exact", -1),
        ("substring", 1),
        ("f1>=0.6", 1),
        ("f1>=0.7", -1),
    ],
)
def test_verifiers(verifier, value):
    # "in paris" against "paris": F1 = 2·½·1/(½ + 1) = ⅔
    assert score(r"\boxed{in Paris}", settings={"verifier": verifier}).value == value


def test_the_details_of_a_score():
    details = score(UNSURE).details
    assert details == {"answer": "I don't know", "truth": "uncertain", "refused": True}


def test_hardened():
    mixed = r"\boxed{Rome, but I don't know}"
    assert score(mixed).value == 0
    assert score(mixed, hardened=True, verdicts={"outcome": 0}).value == -1
    assert score(UNSURE, hardened=True).value == 0
    by_text = {"verifier": "substring"}
    assert score(r"\boxed{not Paris}", settings=by_text).value == 1
    assert score(r"\boxed{not Paris}", settings=by_text, hardened=True).value == -1
    assert score(RIGHT, settings=by_text, hardened=True).value == 1


@pytest.mark.parametrize(
    "name", ["John F. Kennedy", "J. K. Rowling", "F. Scott Fitzgerald", "U.S. Steel", "5. Symphony"]
)
def test_initials_and_numbers_of_a_right_answer_earn_the_full_reward(name):
    settings = {"verifier": "substring"}
    for text in (name, f"It is {name}.", f"The answer is {name}"):
        boxed = rf"\boxed{{{text}}}"
        assert score(boxed, settings=settings, hardened=True, answers=name).value == 1
    guess = rf"\boxed{{1. Rome 2. {name} 3. Berlin}}"
    assert score(guess, settings=settings, hardened=True, answers=name).value == -1


# --- scheme=geometric (FaithRL) -------------------------------------------------------------------

GEOMETRIC = {"scheme": "geometric", "geometric.correct_rate": 0.4, "geometric.wrong_rate": 0.3}


@pytest.mark.parametrize(
    ("text", "verdict", "answerable", "reward", "correct"),
    [
        (RIGHT, None, None, 0.3, 1),
        (RIGHT, None, True, 0.3, 1),
        (UNSURE, None, None, 0, 0),
        (UNSURE, None, True, 0, 0),
        (WRONG, 0, None, -0.4, 0),
        ("Paris", None, None, -0.4, 0),  # no box
        (ALIKE, 1, None, 0.3, 1),
        (UNSURE, None, False, 0.3, 1),
        (RIGHT, None, False, -0.4, 0),
        (WRONG, None, False, -0.4, 0),
        ("", None, False, -0.4, 0),
    ],
)
def test_geometric(text, verdict, answerable, reward, correct):
    verdicts = None if verdict is None else {"outcome": verdict}
    result = score(text, settings=GEOMETRIC, verdicts=verdicts, answerable=answerable)
    assert (result.value, result.correct) == (reward, correct)
    assert result.components == {"outcome": reward}


def test_geometric_rewards_of_a_group():
    rewards = [
        score(text, settings=GEOMETRIC | {"verifier": "exact"}).value
        for text in (RIGHT, WRONG, UNSURE, RIGHT)
    ]
    expected = [0.753776, -1.356797, -0.150755, 0.753776]
    assert faithful_advantages(rewards) == pytest.approx(expected, abs=1e-6)


def test_an_unanswerable_row_needs_no_gold_answer_and_no_verdict():
    for verifier in ("judge", "cascade", "exact"):
        scheme = recipe("truthrl", GEOMETRIC | {"verifier": verifier})
        row = Rollout(response=WRONG, answerable=False)
        assert scheme.needs(row) == []
        assert scheme([row])[0].value == -0.4
    with pytest.raises(DataError, match=r"^answers: missing$"):
        recipe("truthrl", GEOMETRIC)([Rollout(response=WRONG)])


def test_geometric_with_other_settings():
    enhanced = GEOMETRIC | {"knowledge_enhanced": True}
    assert score(UNSURE, settings=enhanced, out_of_knowledge=True).value == 0.3
    assert score(RIGHT, settings=enhanced, out_of_knowledge=True).value == -0.4
    reasoning = GEOMETRIC | {"reasoning.combine": "conditional"}
    verdicts = {"outcome": 0, "reasoning": 0}
    assert score(RIGHT, settings=reasoning, verdicts=verdicts).value == 0
    assert score(WRONG, settings=reasoning, verdicts=verdicts).value == -0.4


@pytest.mark.parametrize("rate", ["correct", "wrong"])
def test_geometric_requires_both_shares(rate):
    settings = {k: v for k, v in GEOMETRIC.items() if rate not in k}
    message = rf"setting geometric\.{rate}_rate: missing: .* share of {rate} answers"
    with pytest.raises(SettingError, match=message):
        recipe("truthrl", settings)
    for value in (0, -1, 1.5, "nan"):
        with pytest.raises(SettingError, match=rf"setting geometric\.{rate}_rate"):
            recipe("truthrl", GEOMETRIC | {f"geometric.{rate}_rate": value})


@pytest.mark.parametrize("answerable", [None, False])
def test_a_guess_beside_an_abstention_earns_nothing_with_the_hardened_profile(answerable):
    """Attacks 15 and 32."""
    settings = GEOMETRIC | {"verifier": "exact"}
    for text in (r"\boxed{Rome? I don't know}", r"\boxed{I don't know, maybe Rome}"):
        guess = score(text, settings=settings, hardened=True, answerable=answerable)
        assert guess.value == -0.4
