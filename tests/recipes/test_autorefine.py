"""AutoRefine: worked examples, a twin of the equation, and notes that earn nothing."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_notation import PARIS, THOUGHT, answer, search

from rag_rewards import DataError, decode_row, recipe

SEARCHED = {"text": THOUGHT + search("capital of France"), "results": [PARIS]}


def score(*turns, hardened=False, answers="Paris", **settings):
    rows = [{"text": turn} if isinstance(turn, str) else turn for turn in turns]
    row = decode_row({"turns": rows, "answers": answers})
    return recipe("autorefine", settings, hardened=hardened)([row])[0]


def refine(text):
    return f"<refine>{text}</refine>"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (refine("Lyon") + answer("Paris"), 1.0),
        (refine("Paris") + answer("Paris or Lyon"), 0.5),
        (refine("It is Paris.") + answer("Lyon"), 0.1),
        (refine("the Parisians") + answer("Lyon"), 0.1),  # part of a word
        (refine("Lyon") + " Paris " + answer("Lyon"), 0.0),
        ("<refine>Paris" + answer("Lyon"), 0.0),
        (refine("Paris"), 0.0),
        (refine("a") + refine("Paris") + answer("Lyon"), 0.1),
    ],
)
def test_worked_examples(text, value):
    result = score(SEARCHED, text)
    assert result.value == pytest.approx(value)
    assert result.turns == (None, pytest.approx(value))


def test_notes_of_all_turns_count_together():
    first = {"text": refine("New") + search("q"), "results": []}
    assert score(first, refine("York") + answer("x"), answers="New York").value == 0.1


def test_only_the_words_of_the_policy_count():
    page = {"text": THOUGHT + search("q"), "results": [{"text": refine("Paris")}]}
    assert score(page, THOUGHT + answer("Lyon")).value == 0.0


def test_all_required_answers_must_be_in_the_notes():
    row = {"answers": [["Paris"], ["Rome"]]}
    assert score(SEARCHED, refine("Rome, Paris") + answer("x"), **row).value == 0.1
    assert score(SEARCHED, refine("Rome") + answer("x"), **row).value == 0.0


@pytest.mark.parametrize(
    ("notes", "results", "value"),
    [("Paris", [PARIS], 0.1), ("Paris", [{"text": "Lyon"}], 0.0), ("Comparison", [PARIS], 0.0)],
)
def test_hardened_notes_need_a_result_and_whole_words(notes, results, value):
    searched = SEARCHED | {"results": results}
    result = score(searched, refine(notes) + answer("Lyon"), hardened=True)
    assert result.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (refine("Paris") + answer("Lyon"), 0.1),
        ("<!--" + refine("Paris") + "-->" + answer("Lyon"), 0.0),
        (answer(refine("Paris") + " Lyon"), 0.0),
        (refine("Paris") + answer("."), 0.0),
    ],
)
def test_hardened_notes_are_visible_and_beside_an_answer(text, value):
    assert score(SEARCHED, text, hardened=True).value == pytest.approx(value)


WORDS = st.lists(st.sampled_from(["Paris", "Lyon", "city"]), max_size=4).map(" ".join)


@given(WORDS, WORDS, st.sampled_from(["Paris", "Lyon city"]), st.floats(0, 1))
def test_the_equation(notes, text, gold, weight):
    words, golds = text.lower().split(), gold.lower().split()
    common = sum((Counter(words) & Counter(golds)).values())
    f1 = 2 * common / (len(words) + len(golds))
    is_noted = re.sub(r"\s+", " ", gold.lower()) in notes.lower()
    expected = f1 or weight * is_noted
    result = score(
        SEARCHED, refine(notes) + answer(text), answers=gold, **{"refine.weight": weight}
    )
    assert result.value == pytest.approx(expected)


def test_a_row_without_answers_is_an_error():
    with pytest.raises(DataError, match="answers"):
        recipe("autorefine")([decode_row({"response": answer("Paris")})])
