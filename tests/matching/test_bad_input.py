"""Answers, gold answers and questions of any form are decided in linear time."""

from __future__ import annotations

import tracemalloc

import pytest
from growth import assert_linear, seconds

from rag_rewards.matching.decide import LONGEST_ANSWER, decide
from rag_rewards.matching.lenient import lenient_match
from rag_rewards.matching.mentions import agrees, stated_answers

PIECES = (
    "a", " a", "Paris ", "Paris, ", "<b>", "**", "*a* ", "_", "\\text{", "{", "[1]", "(", "~~",
    "1 ", "1,", "one hundred ", "½", "July 1 ", "5 km ", "'", "a'", "東京", "は", "พ", "é",
    "\u0301", "\ud800", "\u202e", "😀", "?", "!", "- ", "a-", "J. ", "or ", "who ", "/",
    "Paris or ", "$5 ", "\n# ", "<!--", "12 345 ", "\u200b", "Paris, France, ",
)  # fmt: skip


@pytest.mark.slow
def test_the_time_is_linear_in_the_number_of_aliases() -> None:
    def run(size: int) -> None:
        decide("5 Names 77 x", [f"Name {number} {size}" for number in range(size)])

    assert_linear(run, 10_000)


@pytest.mark.parametrize("piece", PIECES)
def test_an_answer_of_any_form_has_a_decision(piece: str) -> None:
    for answer in (piece, piece * 50, f"Paris {piece}", f"{piece}Paris", f"**{piece}**"):
        assert decide(answer, ["Paris"], f"Which {piece} is it?").value != "wrong" or (
            not answer.strip()
        )


def test_ten_thousand_aliases() -> None:
    aliases = [f"Name {number}" for number in range(10_000)]
    assert decide("It is Name 7777.", aliases).value == "right"
    assert decide("It is Name 77777.", aliases).value == "undecided"


@pytest.mark.slow
def test_the_first_word_of_many_aliases_costs_no_time_for_each_alias() -> None:
    text = "Name " * 1_900

    def run(size: int) -> None:
        aliases = [f"Name x{number}x" for number in range(size)]
        decide(text, aliases)
        stated_answers(text, aliases, "", ["Name"])

    assert seconds(run, 10_000) < 200 * seconds(run, 10)


def test_aliases_without_letters_are_ignored() -> None:
    assert decide("Paris", ["", "?", "😀", "Paris"]).value == "right"
    assert decide("It is Paris 😀", ["😀", "Paris"]).value == "undecided"
    assert decide("😀", ["😀", "Paris"]).value == "right"


def test_lone_surrogates() -> None:
    assert decide("\ud800Paris", ["Paris"]).value == "undecided"
    assert decide("\ud800a", ["\ud800a"]).value == "right"


def test_right_to_left_text() -> None:
    assert decide("القاهرة", ["القاهرة"]).value == "right"
    assert decide("عاصمة مصر هي القاهرة", ["القاهرة"], "ما هي عاصمة مصر؟").value == "right"
    assert decide("\u202eسيراب\u202c", ["باريس"]).value == "undecided"


def test_nested_markup() -> None:
    assert decide("**_`Paris`_**", ["Paris"]).value == "right"
    assert decide(r"$\boxed{\text{\textbf{Paris}}}$", ["Paris"]).value == "right"
    assert decide("<b><i>Paris</i></b>", ["Paris"]).value == "right"


def test_answers_that_are_too_long_are_undecided() -> None:
    decision = decide("Paris " * LONGEST_ANSWER, ["Paris"])
    assert decision.value == "undecided"
    assert "longer than 10,000 characters" in decision.reason


def test_the_reason_for_a_long_word_is_short() -> None:
    decision = decide("Paris " + "a" * 9_000, ["Paris"])
    assert decision.value == "undecided"
    assert len(decision.reason) == 100


def test_a_gold_answer_that_is_too_long_must_be_equal() -> None:
    gold = "Paris " * 1_000
    assert decide(gold, [gold]).value == "right"
    assert decide("Paris " * 200, [gold]).value == "undecided"


def test_letters_that_no_reader_sees_are_no_words() -> None:
    filler = "\u3164"
    assert decide(filler, ["Paris"]).value == "undecided"
    assert decide(f"Paris {filler}", ["Paris"], filler).value == "right"


def test_long_texts_stay_in_memory_for_few_rows_only() -> None:
    text = "x" * 100_000
    tracemalloc.start()
    try:
        for number in range(200):
            long = f"{number} {text}"
            decide("In Rome", ["Paris", long], long)
            stated_answers(f"Paris {long}", ["Paris", long], long, [long])
            agrees(f"Paris {long}", ["Paris"], long, [f"Paris {long}"])
            lenient_match(long, [f"{number} Paris"], long)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 12_000_000, f"{kept:,} bytes of 200 rows with 100 kB each"
