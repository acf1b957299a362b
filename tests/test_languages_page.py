"""The page about languages agrees with the tables, and its examples with the rules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from rag_rewards.matching.decide import decide
from rag_rewards.text.absence import paraphrases

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_languages", DOCS / "build_languages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(build: ModuleType) -> None:
    written = (DOCS / "languages.md").read_text("utf-8")
    assert written == build.page(), "run: python docs/build_languages.py"


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
