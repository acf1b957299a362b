"""Refusals in other words and languages, and the sentences around a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rag_rewards.rewards.refusal import RefusalDetector
from rag_rewards.rollout import Rollout
from rag_rewards.text.absence import declines, explains, foreign, paraphrases
from rag_rewards.text.refusal import ABSTENTIONS, REFUSAL, is_explained_abstention, phrase

ROWS: dict[str, Any] = json.loads(Path(__file__).with_name("refusal_rows.json").read_text("utf-8"))
STRICT = RefusalDetector(strict=True)


def cases(role: str) -> list[Any]:
    return [
        pytest.param(text, id=f"{code}-{text}")
        for code, rows in ROWS.items()
        for text in rows[role]
    ]


def test_every_language_has_rows() -> None:
    assert sorted(ROWS) == sorted(["en", *(code for code in foreign() if len(code) == 2)])


def row(answerable: bool, question: str = "What is the capital?") -> Rollout:
    return Rollout(response="", question=question, answers=["Oslo"], answerable=answerable)


@pytest.mark.parametrize("text", cases("refusals"))
def test_refusals(text: str) -> None:
    """A refusal of an answerable question gets no reward for an answer."""
    assert declines(text)
    assert declines(text.upper())
    assert STRICT.refused(row(True), text) == (True, 0.0)
    assert STRICT.refused(row(False), f"{text} 1702.")[0] is False


@pytest.mark.parametrize("text", cases("answers"))
def test_answers(text: str) -> None:
    assert not declines(text)
    for answerable in (True, False):
        assert STRICT.refused(row(answerable), text) == (False, 0.0)


def test_a_sentence_with_a_gold_answer_does_not_decline() -> None:
    assert declines("The answer is unknown.")
    assert not declines("The answer is unknown.", ["unknown"])
    assert STRICT.refused(row(True), "Unknown.", gold=("unknown",)) == (False, 0.0)


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("It is Bohemian Rhapsody.", "freddie mercury"),
        ("She grew up in Rimpossibile.", "rome"),
        ("答案是不明飞行物。", "不明飞行物"),
        ("Это неизвестный солдат.", "неизвестный солдат"),
    ],
)
def test_a_phrase_of_a_refusal_inside_a_name_does_not_decline(text: str, gold: str) -> None:
    assert not declines(text, [gold])


@pytest.mark.parametrize(
    "text",
    [
        "Ik weet het niet.", "Jag vet inte.", "Nie wiem.", "Nevím.", "Bilmiyorum.", "Sijui jibu.",
        "Tôi không biết.", "Saya tidak tahu.", "Hindi ko alam.", "Nem tudom.", "Δεν ξέρω.",
        "אני לא יודע.", "نمی‌دانم.", "আমি জানি না।", "எனக்குத் தெரியாது.", "არ ვიცი.",
    ],
)  # fmt: skip
def test_refusals_in_languages_without_a_table(text: str) -> None:
    assert declines(text)
    assert not declines(f"{text[:-1]}-Oslo is it. Oslo.", ["oslo"])


def test_a_long_text_is_an_answer() -> None:
    assert not declines("I don't know. " * 200)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I was unable to find an answer in the search results.", True),
        ("I do not know who founded the mill.", True),
        ("The search results contain no information about this.", True),
        ("Je ne sais pas.", True),
        ("Je ne sais pas qui c'est.", True),
        ("Je ne sais pas, peut-être le maire.", False),
        ("No lo se o el alcalde.", False),  # "o" is "or" in Spanish
        ("Não sei o nome.", True),  # and an article in Portuguese
        ("Не знаю, может быть мэр.", False),
        ("I do not know, est le maire.", False),
        ("I don't know, but maybe blue.", False),
        ("I don't know, it is blue.", False),
        ("I don't know who Ann Reed is.", False),
        ("I don't know: 12.", False),
        ('I don\'t know "blue".', False),
    ],
)
def test_paraphrases_contain_no_candidate(text: str, expected: bool) -> None:
    assert paraphrases(text, "Who founded the mill?") is expected
    if declines(text):
        refused, r = STRICT.refused(row(False, "Who founded the mill?"), text)
        assert refused is expected
        assert (0 < r < 0.85) is expected


QUESTION = "Who is the mayor of Lyon?"


@pytest.mark.parametrize(
    "text",
    [
        "The documents discuss Lyon but do not mention its mayor.",
        "The documents do not mention it.",
        "No document names the mayor.",
        "The search results are about other cities.",
        "The passages only cover the geography of the city.",
        "Document 2 only describes the river.",
        "Nothing is said about the mayor.",
        "The mayor of Lyon is not mentioned.",
        "The name is missing from all of them.",
        "Please provide more documents.",
        "I would need a more recent source.",
        "They describe the history of the town, not its government.",
        "The documents were written before the election.",
        "The provided information is insufficient.",
        "The documents are unrelated to the question.",
        "The documents do not mention Jean Roux.",
    ],
)
def test_explanations(text: str) -> None:
    assert explains(text, QUESTION)
    assert STRICT.refused(row(False, QUESTION), f"{REFUSAL} {text}") == (True, 1.0)
    phrases = list(map(phrase, ABSTENTIONS))
    assert is_explained_abstention(f"I don't know. {text}", phrases, (), QUESTION)


@pytest.mark.parametrize(
    "text",
    [
        "Answer without source: Jean Dupont.",
        "Without a source, Jean Dupont.",
        "It is not in the documents, but it is Jean Dupont.",
        "The documents do not say it, although Jean Dupont is mayor.",
        "No document, Paris.",
        "Not in the documents: blue.",
        "The answer is blue.",
        "The documents do not mention it; the answer is blue.",
        "The documents do not contain 1702.",
        "Jean Dupont.",
        "The documents mention Jean Dupont.",
        'The documents do not call it "blue".',
        "No doubt the answer is blue.",
        "None other than blue.",
        "However, the answer is blue.",
        "The results lack Dupont.",
    ],
)
def test_a_leak_is_not_an_explanation(text: str) -> None:
    assert not explains(text, QUESTION)
    assert STRICT.refused(row(False, QUESTION), f"{REFUSAL} {text}")[0] is False
    phrases = list(map(phrase, ABSTENTIONS))
    assert not is_explained_abstention(f"I don't know. {text}", phrases, (), QUESTION)


def test_an_abstention_with_a_gold_answer_is_not_explained() -> None:
    text = "I don't know. The documents do not mention Paris."
    assert is_explained_abstention(text, ["i don't know"], (), "")
    assert not is_explained_abstention(text, ["i don't know"], ("Paris",), "")
    assert not is_explained_abstention("I don't know", ["i don't know"])
