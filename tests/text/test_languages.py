"""Tables of words by language."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import chain
from typing import Any

import msgspec
import pytest

from rag_rewards.text.languages import FOREIGN, Language, english, foreign, marks
from rag_rewards.text.normalize import ARTICLES, fold, squad

FOLDER = files("rag_rewards.text.languages")


def roles(words: Any) -> dict[str, frozenset[str]]:
    return {field: getattr(words, field) for field in words.__struct_fields__}


def test_every_file_is_a_language() -> None:
    names = {path.name for path in FOLDER.iterdir() if path.name.endswith(".json")}
    assert names == {f"{code}.json" for code in ("en", "marks", *FOREIGN)}


def test_english_words_are_in_the_form_of_the_text_that_they_are_compared_with() -> None:
    for entries in roles(english().assertions).values():
        assert [entry for entry in entries if entry != fold(entry).strip()] == []
    for role, entries in roles(english().refusals).items():
        form = fold if role == "phrases" else squad
        others = {entry for entry in entries if entry != form(entry)}
        assert others <= ARTICLES | {"n/a"}


@pytest.mark.parametrize("code", ["en", *FOREIGN])
def test_a_list_contains_each_word_once(code: str) -> None:
    text = FOLDER.joinpath(f"{code}.json").read_text("utf-8")
    for role in re.findall(r": \[([^\]]*)\]", text):
        entries = msgspec.json.decode(f"[{role}]")
        assert len(entries) == len(set(entries))
        assert all(entry == entry.strip() != "" for entry in entries)


READ_ELSEWHERE = {"isn't", "answer", "documents", "mention", "definitely", "i", ""}
"""English words that the rules read and that no role of `en.json` contains."""


@pytest.mark.parametrize("code", FOREIGN)
def test_each_english_word_has_a_role(code: str) -> None:
    table = foreign(code)
    known = set(chain.from_iterable(roles(english().assertions).values())) | ARTICLES
    known |= set(chain.from_iterable(phrase.split() for phrase in known)) | READ_ELSEWHERE
    for glosses in (table.words, table.before, table.after, table.joins):
        for gloss, entries in glosses.items():
            assert known.issuperset(gloss.split(" ")), gloss
            assert entries


@pytest.mark.parametrize("code", FOREIGN)
def test_each_language_has_negations_and_alternatives(code: str) -> None:
    words = foreign(code).words
    assert words["or"]
    assert words.keys() & {"not", "isn't"}
    assert foreign(code).cues or ord(foreign(code).letters[0]) > 0x24F


def test_a_table_is_read_once() -> None:
    assert english() is english()
    assert foreign("ja") is foreign("ja")


def test_marks() -> None:
    assert "?" in marks().questions
    assert set(marks().equivalents.values()) <= set(",;?.")


def test_an_unknown_role_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `negation`"):
        msgspec.json.decode(b'{"name": "x", "negation": []}', type=Language)
