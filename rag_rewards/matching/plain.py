"""Answers in plain letters, which are compared without a full read.

Most answers in a training are a gold answer, or contain a word that nothing explains. A full read
of these gives the same value, and takes ten times as long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain, groupby
from typing import NamedTuple

from rag_rewards.matching.gold import STEM, Required, in_memory
from rag_rewards.matching.reading import key_of
from rag_rewards.matching.refusals import refusals
from rag_rewards.matching.tables import tables, words_of_all
from rag_rewards.matching.values import VALUE_WORDS
from rag_rewards.text.normalize import ARTICLES, fold

_LETTERS = re.compile(r"[A-Za-zÀ-ÖØ-öø-ɏ ,.\-]{1,400}")
_NO_MARKS = str.maketrans(",.-", "   ")
_NO_SPACES = str.maketrans("", "", " .-")
_NO_JOINTS = str.maketrans("", "", " .-/'")
_SHARED = 3  # letters that a word of the question may share with a word of the answer


class PlainGold(NamedTuple):
    """Gold answers of which all aliases are letters.

    keys   the keys of their words
    stems  the beginnings of the keys
    """

    keys: frozenset[str]
    stems: frozenset[str]


class Spellings(NamedTuple):
    """The aliases of the only required answer.

    folded  with case and typography folded
    bare    also without an article before them and punctuation after them
    joined  of letters only, also without spaces and hyphens: "acdc"
    """

    folded: frozenset[str]
    bare: frozenset[str]
    joined: frozenset[str]


def bare_text(folded: str) -> str:
    """Return a folded text without an article before it and punctuation after it."""
    first, _, rest = folded.rstrip(" .!").partition(" ")
    return rest if rest and first in ARTICLES else folded.rstrip(" .!")


def joined_text(folded: str) -> str:
    """Return a folded text without an article and without what joins its letters: "acdc"."""
    bare = bare_text(folded)
    return bare.translate(_NO_JOINTS) if bare[:1].isalpha() and bare[-1].isalpha() else ""


@in_memory
def read_spellings(required: Required) -> Spellings:
    """Return the spellings of gold answers, or none for several required answers."""
    if len(required) != 1:
        return Spellings(frozenset(), frozenset(), frozenset())
    folded = frozenset(fold(alias.strip()) for alias in required[0] if alias.strip())
    names = [bare for bare in map(bare_text, folded) if len(bare) > 1 and not bare[-1].isdigit()]
    joined = frozenset(each for each in map(joined_text, names) if len(each) > 3 and each.isalpha())
    return Spellings(folded, frozenset(names) - tables().function, joined - tables().function)


@in_memory
def read_plain_gold(required: Required) -> PlainGold | None:
    """Return gold answers of letters, or None if an alias has other characters or is yes or no."""
    words: set[str] = set()
    for alias in chain.from_iterable(required):
        if not _LETTERS.fullmatch(alias):
            return None
        parts = alias.lower().translate(_NO_MARKS).split()
        words.update(parts, _acronyms(parts))
    role = tables()
    if not all(any(map(str.isalpha, "".join(each))) for each in required) or (
        words <= role.yes | role.no
    ):
        return None
    keys = frozenset(map(key_of, words))
    stems = frozenset(key_of(word)[:STEM] for word in words - role.english_function)
    return PlainGold(keys, stems)


def _acronyms(words: list[str]) -> Iterator[str]:
    """Yield the runs of short words as one word: "jk" for "J. K. Rowling"."""
    for is_short, run in groupby(words, key=lambda word: len(word) <= 2):
        if is_short:
            yield "".join(run)


def plain_rest(answer: str, required: Required, question: str) -> tuple[list[str], bool] | None:
    """Return the words of an answer that nothing explains, and whether it shares no word with gold.

    Return None if only a full read can tell.
    """
    if not _LETTERS.fullmatch(answer) or (gold := read_plain_gold(required)) is None:
        return None
    words = answer.lower().translate(_NO_MARKS).split()
    question_text = question.lower()
    if not _is_plain(words) or not tables().alternatives.isdisjoint(question_text.split()):
        return None
    keys = list(map(key_of, words))
    others = [word for word, key in zip(words, keys, strict=True) if key not in gold.keys]
    strange = {w for w in others if w not in _vocabulary() and w[:_SHARED] not in question_text}
    if not strange:
        return None
    rest = [word for word in others if word in strange or word in tables().turning]
    return rest, gold.stems.isdisjoint([key[:STEM] for key in keys])


def may_mention(text: str, required: Required) -> bool:
    """Return whether a text may contain a gold answer, without a full read."""
    gold = read_plain_gold(required) if text.isascii() else None
    if gold is None:
        return True
    letters = text.lower().translate(_NO_SPACES)  # "F. B. I."
    return any(key[:_SHARED] in letters for key in gold.keys)


def _is_plain(words: list[str]) -> bool:
    """Return whether words are no refusal, no value and no initials."""
    if not words or min(map(len, words)) == 1:
        return False
    return refusals()[0].isdisjoint(words) and VALUE_WORDS.isdisjoint(words)


@cache
def _vocabulary() -> frozenset[str]:
    """Return the words that a full read may explain."""
    role = tables()
    places = {word for place in role.places for word in place.split()}
    others = words_of_all("function", "titles", "joining", "articles", "alternatives", "degrees")
    return others.union(("mt", "st"), places, role.forms, role.yes, role.no)
