"""The spellings that are the same answer, in both directions, and pairs that are not."""

from __future__ import annotations

import pytest

from rag_rewards.matching.decide import decide

SAME = {
    "articles": [("Beatles", "The Beatles"), ("an owl", "the owl")],
    "plural": [("city", "cities"), ("vesicle", "vesicles"), ("church", "churches")],
    "possessive": [("Hodgkin lymphoma", "Hodgkin's lymphoma")],
    "hyphen": [("Coca-Cola", "Coca Cola")],
    "initials": [("J. R. R. Tolkien", "JRR Tolkien"), ("John F. Kennedy", "John F Kennedy")],
    "acronym": [("U.S.", "US"), ("Ph.D.", "PhD"), ("N.A.T.O.", "NATO")],
    "number words": [("21", "twenty-one"), ("9,999", "nine thousand nine hundred ninety-nine")],
    "round thousands": [("2 million", "2,000,000"), ("3,000", "three thousand")],
    "fractions": [("1/2", "one half"), ("3/4", "¾"), ("2/3", "two thirds"), ("1.5", "1½")],
    "thousands separators": [("12,500", "12500"), ("12 500", "12,500"), ("1.000.000", "1000000")],
    "currency": [("$5", "5 dollars"), ("€1.5 million", "1.5 million euros")],
    "unit": [("5 km", "5 kilometres"), ("20%", "20 per cent"), ("60 mph", "60 miles per hour")],
    "ordinals": [("20th", "twentieth"), ("1st", "first"), ("21st", "twenty-first")],
    "order of a date": [("July 20, 1969", "20th of July 1969"), ("20 July 1969", "1969-07-20")],
    "weekday": [("20 July 1969", "Sunday, 20 July 1969")],
    "accents": [("São Paulo", "Sao Paulo"), ("Łódź", "Lodz")],
    "British endings": [("theatre", "theater"), ("colour", "color"), ("organise", "organize")],
    "ampersand": [("Marks & Spencer", "Marks and Spencer")],
    "width": [("NHK", "ＮＨＫ"), ("2008", "２００８")],
}

DIFFERENT = [
    ("peché", "pêche"),  # both have accents
    ("4 July 1776", "04/07/1776"),
    ("3,500", "3.500"),
    ("20th", "20"),
    ("1/2", "2"),
    ("$5", "€5"),
    ("July 20, 1969", "July 21, 1969"),
    ("Washington", "Washingtons Hill"),
    ("U.S.", "USB"),
    ("10 am", "10 pm"),
]


@pytest.mark.parametrize(
    ("gold", "answer"), [pair for pairs in SAME.values() for pair in pairs], ids=str
)
def test_equivalence(gold: str, answer: str) -> None:
    assert decide(answer, [gold]).value == "right"
    assert decide(gold, [answer]).value == "right"


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_difference(gold: str, answer: str) -> None:
    assert decide(answer, [gold]).value != "right"
    assert decide(gold, [answer]).value != "right"


def test_a_finer_date_is_right_unless_the_question_asks_for_the_day() -> None:
    assert decide("July 20, 1969", ["1969"], "In which year was it?").value == "right"
    assert decide("July 20, 1969", ["1969"], "On which day was it?").value == "undecided"


@pytest.mark.parametrize("separator", [", France", " (France)"])
def test_a_country_after_its_place_needs_the_pair_in_the_context(separator: str) -> None:
    answer = f"Paris{separator}"
    assert decide(answer, ["Paris"], "Where is it?").value == "undecided"
    assert decide(answer, ["Paris"], "", ["It was signed in Paris, France."]).value == "right"
    assert decide(answer, ["Paris", "Paris, France"]).value == "right"
    assert decide(answer, ["Paris"], "", ["It was signed in Paris, Texas."]).value == "undecided"
