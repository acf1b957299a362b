"""Words of refusals by language."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from rag_rewards.text.absence import EnglishRefusals, english, foreign
from rag_rewards.text.normalize import ARTICLES, squad

TABLES: dict[str, dict[str, str]] = json.loads(
    files("rag_rewards.text").joinpath("refusal_words.json").read_text("utf-8")
)


def test_the_roles_of_each_language() -> None:
    assert set(TABLES["en"]) == {"name", *EnglishRefusals._fields}
    for code in foreign():
        assert {"name", "phrases"} <= set(TABLES[code]) <= {"name", "phrases", "guesses"}


@pytest.mark.parametrize("code", TABLES)
def test_a_role_contains_each_entry_once(code: str) -> None:
    for role, text in TABLES[code].items():
        entries = text.split(", ")
        assert len(entries) == len(set(entries)), role
        assert all(entry == entry.strip() != "" for entry in entries), role


def test_english_words_are_in_the_form_of_the_text_that_they_are_compared_with() -> None:
    for role, entries in english()._asdict().items():
        if role != "phrases":
            assert {entry for entry in entries if entry != squad(entry)} <= ARTICLES | {"n/a"}


def test_the_phrases_of_a_language_have_one_kind_of_script() -> None:
    for language in foreign().values():
        kinds = {phrase < "\u024f" for phrase in language.phrases}
        assert kinds == {language.is_latin}, language.name


def test_the_tables_are_read_once() -> None:
    assert english() is english()
    assert foreign() is foreign()
