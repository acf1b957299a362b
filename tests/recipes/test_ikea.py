"""IKEA: worked examples, a twin of the equation, and what makes a rollout invalid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_notation import PARIS, THOUGHT, answer, search

from rag_rewards import SettingError, decode_row, recipe

SEARCHED = {"text": THOUGHT + search("capital of France"), "results": [PARIS]}


def score(*turns, hardened=False, **settings):
    rows = [{"text": turn} if isinstance(turn, str) else turn for turn in turns]
    row = decode_row({"turns": rows, "answers": "Paris"})
    return recipe("ikea", settings, hardened=hardened)([row])[0]


def last(text):
    return THOUGHT + answer(text)


@pytest.mark.parametrize("searches", range(6))
@pytest.mark.parametrize("text", ["Paris", "Lyon"])
def test_the_table(searches, text):
    result = score(*[SEARCHED] * searches, last(text))
    right = {0: 1.6, 1: 1.4, 2: 1.2}.get(searches, 1.0)
    assert result.value == pytest.approx(right if text == "Paris" else 0.05 * (searches > 0))
    assert result.turns[-1] == result.value
    assert result.components["searches"] == searches


@pytest.mark.parametrize(
    ("turns", "fault"),
    [
        ([answer("Paris")], "no thinking"),
        ([THOUGHT, last("Paris")], "an action"),
        ([THOUGHT + "<search>q", last("Paris")], "an action"),
        ([THOUGHT + "(search for it)" + answer("Paris")], "a bracket"),
        (["<think>See [answer].</think>" + answer("Paris")], "a bracket"),
    ],
)
def test_invalid_rollouts(turns, fault):
    result = score(*turns)
    assert result.value == -1.0
    assert result.details["invalid"].startswith(fault)
    assert score(*turns, **{"boundary.invalid": -0.5}).value == -0.5


@pytest.mark.parametrize("text", ["The answer (a river) is open. I search.", "I research (it)."])
def test_brackets_elsewhere_are_valid(text):
    assert score(f"<think>{text}</think>" + answer("Paris")).value == pytest.approx(1.6)


def test_thinking_can_begin_in_the_prompt():
    begun = "I know.</think>" + answer("Paris")
    assert score(begun).value == pytest.approx(1.6)
    assert score("</think>" + answer("Paris")).value == -1


def test_each_query_of_a_turn_counts():
    calls = [
        {"function": {"name": "search", "arguments": {"query": str(i)}}, "id": str(i)}
        for i in range(4)
    ]
    tools = [{"role": "tool", "tool_call_id": str(i), "content": "A page."} for i in range(4)]
    messages = [
        {"role": "assistant", "content": "<think>a</think>", "tool_calls": calls},
        *tools,
        {"role": "assistant", "content": last("Paris")},
    ]
    result = recipe("ikea")([decode_row({"response": messages, "answers": "Paris"})])[0]
    assert (result.components["searches"], result.value) == (4, 1.0)


def test_a_page_with_a_bracket_is_valid():
    page = {"text": THOUGHT + search("q"), "results": [{"text": "Type here (search)."}]}
    assert score(page, last("Paris")).value == pytest.approx(1.4)


def test_a_query_without_results_is_no_search():
    assert score({"text": THOUGHT + search("q")}, last("Lyon")).value == 0.0


@given(
    st.integers(0, 9),
    st.booleans(),
    st.floats(0, 2),
    st.integers(1, 6),
    st.floats(0, 1),
)
def test_the_equation(searches, right, bonus, limit, attempt):
    settings = {"boundary.bonus": bonus, "boundary.limit": limit, "boundary.attempt": attempt}
    result = score(*[SEARCHED] * searches, last("Paris" if right else "Lyon"), **settings)
    if right:
        expected = 1.0 + (bonus * (1 - searches / limit) if searches < limit else 0.0)
    else:
        expected = attempt if searches else 0.0
    assert result.value == pytest.approx(expected)


def test_invalid_settings():
    with pytest.raises(SettingError, match=r"boundary\.limit"):
        recipe("ikea", {"boundary.limit": 0})
