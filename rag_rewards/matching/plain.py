"""Answers in plain letters, which are compared without a full read.

Most answers in a training are a gold answer, or contain a word that nothing explains. A full read
of these gives the same value, and takes ten times as long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache
from itertools import chain, groupby
from typing import NamedTuple

from rag_rewards.matching.gold import STEM, Required, in_memory
from rag_rewards.matching.reading import keys_of
from rag_rewards.matching.refusals import refusals
from rag_rewards.matching.tables import tables, words_of_all
from rag_rewards.matching.values import VALUE_WORDS
from rag_rewards.text.normalize import ARTICLES, fold

_LETTERS = re.compile(r"[A-Za-zÀ-ÖØ-öø-ɏ ,.\-]{1,400}")
_NO_MARKS = str.maketrans(",.-", "   ")
_JOINTS = 4  # more than in the longest alias
_NO_JOINTS = str.maketrans("", "", " .-/'")
_LONGEST_QUESTION = 2_000  # characters
_SHARED = 3  # letters that a word of the question may share with a word of the answer


class PlainGold(NamedTuple):
    """Gold answers of which all aliases are letters.

    keys   the keys of their words
    stems  the beginnings of the keys
    """

    keys: set[str]
    stems: set[str]


class Spellings:
    """Gold answers in the forms in which plain answers are compared with them.

    folded  the aliases of the only required answer with case and typography folded
    bare    also without an article before them and punctuation after them
    """

    def __init__(self, required: Required) -> None:
        self.required = required
        aliases = required[0] if len(required) == 1 else ()
        self.folded = {folded for alias in aliases if (folded := fold(alias.strip()))}
        function = tables().function
        self.bare = {
            name
            for name in map(bare_text, self.folded)
            if len(name) > 1 and not name[-1].isdigit() and name not in function
        }
        self.first_letters = "".join([name[0] for name in self.bare])
        self.longest = max(map(len, self.bare), default=0) + _JOINTS

    def has(self, folded: str) -> bool:
        """Return whether an answer differs from an alias only in an article, marks and joints."""
        bare = bare_text(folded)
        if bare in self.bare:
            return True
        if not bare or bare[0] not in self.first_letters or len(bare) > self.longest:
            return False
        return joined_text(bare) in self.joined

    @cached_property
    def joined(self) -> frozenset[str]:
        """The aliases of letters only, also without spaces and hyphens: "acdc"."""
        return frozenset(filter(_is_long, map(joined_text, self.bare))) - tables().function

    @cached_property
    def letters(self) -> PlainGold | None:
        """Gold answers of letters, or None if an alias has other characters or is yes or no."""
        words: set[str] = set()
        for alias in chain.from_iterable(self.required):
            if not _LETTERS.fullmatch(alias):
                return None
            parts = alias.lower().translate(_NO_MARKS).split()
            if not parts:
                return None
            words.update(parts)
            if sum([len(part) <= 2 for part in parts]) > 1:
                words.update(_acronyms(parts))
        role = tables()
        if words <= role.yes or words <= role.no:
            return None
        content = [word for word in words if word not in role.english_function]
        return PlainGold(set(keys_of(words)), {key[:STEM] for key in keys_of(content)})


read_spellings = in_memory(Spellings)


def is_plain(answer: str) -> bool:
    """Return whether an answer is short and consists of letters, spaces and a few marks."""
    return _LETTERS.fullmatch(answer) is not None


def bare_text(folded: str) -> str:
    """Return a folded text without an article before it and punctuation after it."""
    folded = folded.rstrip(" .!")
    first, _, rest = folded.partition(" ")
    return rest if rest and first in ARTICLES else folded


def joined_text(bare: str) -> str:
    """Return a text without what joins its letters: "acdc"."""
    return bare.translate(_NO_JOINTS) if bare[:1].isalpha() and bare[-1].isalpha() else ""


def _is_long(joined: str) -> bool:
    return len(joined) > 3 and joined.isalpha()


def _acronyms(words: list[str]) -> Iterator[str]:
    """Yield the runs of short words as one word: "jk" for "J. K. Rowling"."""
    for is_short, run in groupby(words, key=lambda word: len(word) <= 2):
        if is_short:
            yield "".join(run)


def plain_rest(answer: str, spellings: Spellings, question: str) -> tuple[list[str], bool] | None:
    """Return the words of a plain answer that nothing explains, and whether it shares none of gold.

    Return None if only a full read can tell.
    """
    if (gold := spellings.letters) is None:
        return None
    words = answer.lower().translate(_NO_MARKS).split()
    question_text = _without_alternatives(question)
    if question_text is None or not _has_words_only(words):
        return None
    keys = keys_of(words)
    others = [word for word, key in zip(words, keys, strict=True) if key not in gold.keys]
    vocabulary = _vocabulary()
    strange = [w for w in others if w not in vocabulary and w[:_SHARED] not in question_text]
    if not strange:
        return None
    turning = tables().turning
    rest = [word for word in others if word in turning or word in strange]
    return rest, gold.stems.isdisjoint([key[:STEM] for key in keys])


@lru_cache(maxsize=1024)
def _without_alternatives(question: str) -> str | None:
    """Return a question in lower case, or None if it may offer alternatives."""
    folded = question[:_LONGEST_QUESTION].lower()
    return folded if tables().alternatives.isdisjoint(folded.split()) else None


def _has_words_only(words: list[str]) -> bool:
    """Return whether words are no refusal, no value and no initials."""
    if not words or min(map(len, words)) == 1:
        return False
    return refusals()[0].isdisjoint(words) and VALUE_WORDS.isdisjoint(words)


@cache
def _vocabulary() -> frozenset[str]:
    """Return the words that a full read may explain."""
    role = tables()
    places = {word for place in role.places for word in place.split()}
    others = words_of_all(
        "function", "titles", "joining", "articles", "alternatives", "degrees", "suffixes"
    )
    return others.union(("mt", "st"), places, role.forms, role.yes, role.no)
