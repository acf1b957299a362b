"""Tables of words by language."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import msgspec
import pytest

from rag_rewards.text.languages import AssertionWords, Language, language, marks
from rag_rewards.text.normalize import fold, squad

CODES = sorted(
    path.name.removesuffix(".json")
    for path in files("rag_rewards.text.languages").iterdir()
    if path.name.endswith(".json") and path.name != "marks.json"
)


def roles(words: Any) -> dict[str, frozenset[str]]:
    return {field: getattr(words, field) for field in words.__struct_fields__}


@pytest.mark.parametrize("code", CODES)
def test_words_are_in_the_form_of_the_text_that_they_are_compared_with(code: str) -> None:
    table = language(code)
    for entries in roles(table.assertions).values():
        assert [entry for entry in entries if entry != fold(entry).strip()] == []
    for entries in roles(table.refusals).values():
        assert [
            entry for entry in entries if entry != squad(entry) and entry not in "a an the"
        ] == []


@pytest.mark.parametrize("code", CODES)
def test_a_file_lists_each_word_of_a_role_once(code: str) -> None:
    text = files("rag_rewards.text.languages").joinpath(f"{code}.json").read_text("utf-8")
    for role in re.findall(r"\[([^\]]*)\]", text):
        entries = msgspec.json.decode(f"[{role}]")
        assert len(entries) == len(set(entries))


def test_a_table_is_read_once() -> None:
    assert language("en") is language("en")
    assert isinstance(language("en").assertions, AssertionWords)


def test_marks() -> None:
    assert "?" in marks().questions
    assert "," in marks().list_marks


def test_an_unknown_role_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `negation`"):
        msgspec.json.decode(b'{"name": "x", "negation": []}', type=Language)
