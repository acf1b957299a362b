"""The examples of the page about languages agree with the rules."""

from __future__ import annotations

import pytest

from rag_rewards.matching.decide import decide
from rag_rewards.text.absence import paraphrases


@pytest.mark.parametrize(
    ("question", "text", "answer", "expected"),
    [
        ("Was ist die Hauptstadt?", "Die Antwort ist Paris.", "Paris", "right"),
        ("Qual è la capitale?", "La risposta è Paris.", "Paris", "right"),
        ("Welke stad is het?", "Het is Paris", "Paris", "right"),
        ("What is the capital?", "La risposta è Paris.", "Paris", "undecided"),
        ("Was ist die Hauptstadt?", "nicht Paris", "Paris", "undecided"),
        ("Quelle est la capitale ?", "Paris ou Rome", "Paris", "undecided"),
        ("", "答案是巴黎", "巴黎", "right"),
        ("", "파리입니다", "파리", "right"),
        ("", "Ik weet het niet", "Paris", "wrong"),
        ("", "Парижа", "Париж", "undecided"),
        ("", "Paris", "Париж", "undecided"),
        ("", "Deutschland", "Germany", "undecided"),
        ("", "東京都", "東京", "undecided"),
    ],
)
def test_examples(question: str, text: str, answer: str, expected: str) -> None:
    assert decide(text, [answer], question).value == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Je ne sais pas, Rome", False),
        ("Je ne sais pas, peut-être", False),
        ("わかりません,ローマ", True),
    ],
)
def test_guesses_after_a_refusal(text: str, expected: bool) -> None:
    assert paraphrases(text, "") is expected


def test_a_function_word_that_is_an_english_word() -> None:
    assert decide("Die Antwort ist Paris.", ["Paris"], "Was ist die Hauptstadt?").value == "right"
    assert decide("Die Antwort ist Paris.", ["Paris"], "Which city is it?").value == "undecided"
