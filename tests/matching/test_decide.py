"""The cases that define right, wrong and undecided."""

from __future__ import annotations

import pytest

from rag_rewards.errors import DataError
from rag_rewards.matching.decide import decide

CAPITAL = "What is the capital of France?"

CASES = [
    # gold, answer, question, value
    ("1969", "before 1969", "", "undecided"),
    ("Paris", "outside Paris", "", "undecided"),
    ("100", "over 100", "", "undecided"),
    ("106", "10⁶", "", "undecided"),
    ("Paris", "~~Paris~~", "", "undecided"),
    ("Kansas", "Kansas City", "Which city is it?", "undecided"),
    ("Paris", "Paris?", CAPITAL, "undecided"),
    ("United States", "USA", "", "undecided"),
    ("Germany", "Deutschland", "", "undecided"),
    ("The Beatles", "The Rolling Stones", "", "undecided"),
    ("Paris", "It is Rome", CAPITAL, "undecided"),
    ("4 July 1776", "04/07/1776", "", "undecided"),
    ("3,500", "3.500", "", "undecided"),
    ("東京", "東京都", "日本の首都はどこですか？", "undecided"),
    ("Paris", "It could be Paris", CAPITAL, "undecided"),
    ("Paris", "\x08Paris", CAPITAL, "undecided"),
    ("Paris", "\u202eParis", CAPITAL, "undecided"),
    ("Rome", "Carthage defeated Rome", "Who defeated Carthage?", "undecided"),
    ("July 20, 1969", "1969", "", "undecided"),
    ("yes", "Yes and no", "Is it true?", "undecided"),
    ("Bach", "Bach Handel", "Who was older, Handel or Bach?", "undecided"),
    ("Einstein", "Bohr, Einstein", "Who debated with Bohr?", "undecided"),
    ("1945", "1939, 1945", "When did the war that began in 1939 end?", "undecided"),
    ("1815", "as of 1815", "When was it?", "undecided"),
    ("5", "5 am", "How many are there?", "undecided"),
    ("Adam", "Adam's son", "Who was it?", "undecided"),
    ("5", "-5", "", "wrong"),
    ("5", ".5", "", "wrong"),
    ("C", "C++", "", "wrong"),
    ("5 miles", "5 km", "", "wrong"),
    ("1998", "1999", "", "wrong"),
    ("yes", "No.", "Is it true?", "wrong"),
    ("Bach", "Handel", "Who was older, Handel or Bach?", "wrong"),
    ("Paris", "", CAPITAL, "wrong"),
    ("Paris", "I don't know.", CAPITAL, "wrong"),
    ("150", "one hundred and fifty", "", "right"),
    ("1/2", r"\frac{1}{2}", "", "right"),
    ("파리", "파리입니다", "프랑스의 수도는 어디입니까?", "right"),
    ("July 20, 1969", "20 July 1969", "", "right"),
    ("J.K. Rowling", "JK Rowling", "Who wrote Harry Potter?", "right"),
    ("São Paulo", "Sao Paulo", "", "right"),
    ("Unknown", "Unknown", "", "right"),
    ("Dr. No", "Dr. No", "", "right"),
    ("Paris", "The capital of France is **Paris** [1].", CAPITAL, "right"),
    ("Paris", "Capital of France: Paris", CAPITAL, "right"),
    ("citric acid", "citric", "What type of acid is in lemons?", "right"),
    ("Victoria", "Queen Victoria", "", "right"),
    ("no", "The answer is no.", "Is it true?", "right"),
    ("1969", "July 20, 1969", "In which year was it?", "right"),
    ("?", "?", "", "right"),
    ("Alien", "Aliens", "Which 1979 film is set on the Nostromo?", "undecided"),
    ("Alien", "the film Alien (1979)", "Which 1979 film is set on the Nostromo?", "right"),
    ("AC/DC", "ACDC", "Which band recorded Thunderstruck?", "right"),
    ("The Who", 'The band is "The Who".', "Which band recorded Tommy?", "right"),
    ("The Who", "who", "Which band recorded Tommy?", "undecided"),
    ("33rd", "the 33rd president", "Which president was Truman?", "right"),
    ("CO2", "Its formula is CO₂", "What is the formula of carbon dioxide?", "right"),
    ("B12", "B¹²", "Which vitamin is it?", "undecided"),
    ("LHR", "LНR", "What is the code of Heathrow?", "undecided"),
    ("7 pm", "at 7 p.m.", "When does it begin?", "right"),
    ("7 pm", "by 7 p.m.", "When does it begin?", "undecided"),
    ("NASA", "NASA, ESA", "Which agency launched Hubble?", "undecided"),
    ("Bach", "The composer was Bach", "Who composed it?", "right"),
    ("Caesar", "the killer of Caesar", "Who did Brutus kill?", "undecided"),
    ("John", "Pope John", "Which king was it?", "undecided"),
    ("no", "No, he did not.", "Did he win?", "right"),
    ("no", "No, he did", "Did he win?", "undecided"),
    ("Ankara", "Ankara'dır", "Türkiye'nin başkenti neresidir?", "right"),
    ("Thomas Mann", "Den Roman schrieb Thomas Mann", "Wer schrieb den Roman?", "right"),
    ("Brussel", "Brussel of Gent", "Wat is de hoofdstad van België?", "undecided"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer", "question", "value"), CASES)
def test_value(gold: str, answer: str, question: str, value: str) -> None:
    assert decide(answer, [gold], question).value == value


@pytest.mark.parametrize(
    ("answer", "value"),
    [("Myanmar or Burma", "right"), ("Myanmar (Burma)", "right"), ("Burma or Siam", "undecided")],
)
def test_aliases_of_one_answer_may_both_occur(answer: str, value: str) -> None:
    assert decide(answer, ["Myanmar", "Burma"]).value == value


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Rome and Paris", "right"),
        ("both Paris and Rome", "right"),
        ("Paris, Rome", "right"),
        ("Paris / Rome", "right"),
        ("Paris\nRome", "right"),
        ("Paris", "undecided"),
        ("Paris, Rome, Oslo", "undecided"),
        ("Paris or Rome", "undecided"),
    ],
)
def test_required_answers(answer: str, value: str) -> None:
    assert decide(answer, [["Paris"], ["Rome"]], "Which cities are capitals?").value == value


def test_one_span_of_text_serves_one_required_answer() -> None:
    assert decide("Paris", [["Paris"], ["Paris", "Lutetia"]]).value == "undecided"
    assert decide("Paris and Lutetia", [["Paris"], ["Paris", "Lutetia"]]).value == "right"


def test_the_reason_lists_the_words_that_nothing_explains() -> None:
    assert decide("Paris or Rome", ["Paris"]).reason == "or, rome"
    assert decide("Rome", ["Paris"]).reason == "nothing in common"


@pytest.mark.parametrize("gold", [["?"], [""], [], [["Paris"], ["..."]], [[]]])
def test_gold_answers_without_letters_are_refused(gold: list[str]) -> None:
    with pytest.raises(DataError, match="has a letter or digit"):
        decide("Paris", gold)
