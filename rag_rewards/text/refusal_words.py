"""Words of refusals by language, from the table `refusal_words.json`.

English words have a role each. Every other language has the phrases of its refusals, and the words
that begin a guess. `others` has phrases of languages without guesses.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from rag_rewards.text.normalize import fold

Words = frozenset[str]
LATIN = "\u024f"
"""The last of the letters that Latin scripts begin a word with."""


class EnglishRefusals(NamedTuple):
    """English words of refusals. Phrases have the form of `fold`, the others that of `squad`.

    negators     negate a sentence; two sentences that differ in their number differ in meaning
    absence      report, together with one of `sources`, that something is missing
    sources      what a report of absence is about: "the documents"
    asserting    begin an assertion in a report of absence: "no other than"
    content      words that a refusal may contain, together with `negators`
    phrases      phrases of which each sentence of a refusal contains one: "no idea"
    paraphrase   further words of refusals in other words
    topics       say what the sources are about instead: "The documents describe the plot"
    requests     ask for further sources: "Please provide more documents"
    reported     follow "is" or "was" in a report of absence: "No date is given"
    guesses      begin an assertion after a refusal: "but maybe"
    """

    negators: Words
    absence: Words
    sources: Words
    asserting: Words
    content: Words
    phrases: Words
    paraphrase: Words
    topics: Words
    requests: Words
    reported: Words
    guesses: Words


class Refusals(NamedTuple):
    """Folded phrases of refusals in another language, and words that begin a guess: "oder"."""

    name: str
    phrases: tuple[str, ...]
    guesses: tuple[str, ...] = ()

    @property
    def is_latin(self) -> bool:
        return self.phrases[0] < LATIN


@cache
def english() -> EnglishRefusals:
    """Return the English words by role."""
    table = _tables()["en"]
    return EnglishRefusals(*(frozenset(_entries(table[r])) for r in EnglishRefusals._fields))


@cache
def foreign() -> dict[str, Refusals]:
    """Return the refusals of the other languages by code."""
    return {
        code: Refusals(table["name"], _entries(table["phrases"]), _entries(table.get("guesses")))
        for code, table in _tables().items()
        if code != "en"
    }


def _entries(text: str | None) -> tuple[str, ...]:
    return tuple(map(fold, text.split(", "))) if text else ()


@cache
def _tables() -> dict[str, dict[str, str]]:
    content = files(__package__).joinpath("refusal_words.json").read_bytes()
    return msgspec.json.decode(content, type=dict[str, dict[str, str]])
