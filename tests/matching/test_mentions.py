"""Gold answers that statements and documents contain as whole words."""

from __future__ import annotations

from itertools import product

import pytest

from rag_rewards.matching.mentions import _needles, agrees, mentioned_answers, stated_answers


@pytest.mark.parametrize("gold", [["Paris"], ["東京"], [["Paris"], ["東京"]]])
def test_private_characters_of_a_document_are_no_gold_answer(gold: list[str]) -> None:
    document = "The capital \ue000 is \ue001 large."
    assert not any(mentioned_answers(document, gold))
    assert not agrees("The capital is Paris 東京.", gold, "", [document])


def test_an_alias_without_spaces_is_found_beside_private_characters() -> None:
    assert mentioned_answers("日本の首都は\ue001東京です", [["東京"], ["京都"]]) == [True, False]
    assert stated_answers("日本の首都は東京です", [["東京"], ["京都"]]) == [True, False]


@pytest.mark.parametrize(
    ("gold", "statement"),
    [
        ("seven", "It has 7 units."),
        ("7", "It has seven units."),
        ("gray", "The sky is grey."),
        ("a fly", "It eats flies."),
        ("colorful", "It is a colourful bird."),
        ("FBI", "The F. B. I. did it."),
        ("Istanbul", "The city is İstanbul."),
        ("Marchetti", "It was **Mar**chetti."),
        ("São Paulo", "It is Sao Paulo."),
        ("Johnson and Johnson", "It is Johnson & Johnson."),
        ("9:30 am", "It opens at 9:30 a.m."),
        ("St. Gall", "It is St Gall."),
        ("C++", "It is written in C++."),
    ],
)
def test_the_search_for_a_gold_answer_finds_its_spellings(gold: str, statement: str) -> None:
    assert stated_answers(statement, [gold]) == mentioned_answers(statement, [gold]) == [True]


def test_a_gold_answer_with_many_aliases_is_found() -> None:
    aliases = [f"Name {chr(97 + number % 26)}{number}x" for number in range(200)]
    assert stated_answers("It is Paris.", [*aliases, "Paris"]) == [True]
    assert agrees("It is Paris.", [*aliases, "Paris"], "", ["Paris is large."])


def test_the_search_by_the_beginnings_of_words_knows_all_spellings() -> None:
    parts = "our ise ys ae re tre ogue ll ence ies s ed ing gr ey al b t n a o ium er".split()
    for word in map("".join, product(parts, repeat=3)):
        assert word.startswith(_needles(((word,),)).beginnings or "")
