"""What a question asks for, and which words of a text repeat it."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import NamedTuple

from rag_rewards.text.languages import english
from rag_rewards.text.lazy import lazy
from rag_rewards.text.normalize import fold
from rag_rewards.text.strict.assertion_words import NEGATIONS
from rag_rewards.text.strict.parts import Parts
from rag_rewards.text.word_forms import plain
from rag_rewards.text.words import EDGES

SEVERAL = 5  # answers that a list can have if the question does not say how many it asks for
_LONGEST = 1_000  # characters that tell how many answers a question asks for
_LONGEST_ECHO = 10_000  # characters that a text can repeat
_WORDS = english().questions
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")


@lru_cache(maxsize=4096)
def answers_asked_for(question: str) -> int:
    """Return how many answers a response to a question can name: 1, or several.

    >>> [answers_asked_for(q) for q in (
    ...     "Which cities are capitals?", "Which city is the capital?", "Name three cities.",
    ...     "Who were the members of the band?", "Who sings the songs?")]
    [5, 1, 3, 5, 1]
    """
    words = _WORD.findall(fold(question[:_LONGEST]))
    if not words or words[-1] in _WORDS.naming:
        return 1
    if "(s)" in question or not _WORDS.several_verbs.isdisjoint(words):
        return SEVERAL
    at = next((i for i, word in enumerate(words) if word in _WORDS.interrogatives), -1)
    subject = words[at + 1 : at + 6]
    # "(what are) the three books"
    start = next((i for i, word in enumerate(subject) if word not in _WORDS.determiners), 0)
    number = _number(subject[start]) if subject else 1
    if number > 1 and any(map(_is_plural, subject[start + 1 : start + 3])):
        return number
    interrogative = words[at] if at >= 0 else ""
    return SEVERAL if subject and _asks_for_several(interrogative, subject, start) else 1


@lru_cache(maxsize=4096)
def accepts_coarser_dates(question: str) -> bool:
    """Return whether "1999" answers a question if the gold answer is a day of that year.

    >>> [accepts_coarser_dates(q) for q in (
    ...     "When was it built?", "On which date was it built?", "Who built it?")]
    [True, False, False]
    """
    words = _words_of(question)
    return not words.isdisjoint(_WORDS.times) and words.isdisjoint(_WORDS.parts_of_dates)


@lru_cache(maxsize=4096)
def asks_for_winner(question: str) -> bool:
    """Return whether a question asks who won: "Who won the final?"."""
    return not _words_of(question).isdisjoint(_WORDS.winning)


@lru_cache(maxsize=4096)
def is_choice(question: str) -> bool:
    """Return whether a question names alternatives: "Is it Rome or Paris?"."""
    return "or" in _words_of(question)


@lru_cache(maxsize=4096)
def names_in(question: str) -> frozenset[str]:
    """Return the words of a question that can be names, in lower case and without accents.

    These are the words with a capital. In a question without capitals, they are all words but
    those that say what the question asks for.

    >>> sorted(names_in("Which lake is near Bonn?")), sorted(names_in("which lake is near bonn"))
    (['bonn'], ['bonn', 'near'])
    """
    words = question[:_LONGEST].split()
    names = [word for word in words[1:] if word[:1].isupper()]
    if not names and not question[:1].isupper():
        texts = [token.casefold() for token in words]
        at = next((i for i, text in enumerate(texts) if text in _WORDS.interrogatives), -1)
        names = words[:at] + words[at + 3 :] if at >= 0 else words
    return frozenset(plain(name.strip(EDGES)) for name in names)


def _words_of(question: str) -> frozenset[str]:
    return frozenset(_WORD.findall(fold(question[:_LONGEST])))


def _asks_for_several(interrogative: str, subject: list[str], start: int) -> bool:
    """Return whether the words after "which" or "who" are about several things."""
    if subject[start] in _WORDS.collections:
        return True
    if interrogative and subject[0] in _WORDS.plural_verbs:
        return True
    return interrogative not in _WORDS.persons | {""} and (
        _is_plural(subject[0])
        or any(
            _is_plural(noun) and verb in _WORDS.auxiliaries
            for noun, verb in itertools.pairwise(subject)
        )
    )


def _number(word: str) -> int:
    """Return the value of a number below 100, in digits or words; 1 for other words."""
    return int(word) if word.isdecimal() and len(word) < 3 else _WORDS.numbers.get(word, 1)


def _is_plural(word: str) -> bool:
    return (
        len(word) > 3
        and word.endswith("s")
        and not word.endswith(("ss", "us", "is", "'s"))
        and word not in _WORDS.singular
    )


class Echo:
    """The words of a text that repeat the question. They are found on first use.

    A word does in a run of three words that the question contains. A negation does before a word
    of a question that also contains a negation ("Which bird cannot fly?", "It cannot fly.").
    """

    def __init__(self, parts: Parts, question: str) -> None:
        self._parts = parts
        self._question = question

    def __getitem__(self, at: int) -> bool:
        return self._flags[at]

    def covers(self, start: int, end: int) -> bool:
        """Return whether all words of a half-open range repeat the question."""
        return all(self._flags[start:end])

    @lazy
    def _flags(self) -> list[bool]:
        texts = self._parts.texts
        echo = [False] * len(texts)
        if not self._question:
            return echo
        repeated = _read(self._question)
        for at, run in enumerate(zip(texts, texts[1:], texts[2:], strict=False)):
            if run in repeated.runs:
                echo[at : at + 3] = [True] * 3
        if repeated.negated:
            for at, text in enumerate(texts[:-1]):
                if _is_negation(text) and texts[at + 1] in repeated.words:
                    echo[at] = True
        return echo


class _Repeated(NamedTuple):
    words: frozenset[str]
    runs: frozenset[tuple[str, ...]]
    negated: bool


@lru_cache(maxsize=4096)
def _read(question: str) -> _Repeated:
    texts = [token.strip(EDGES) for token in fold(question[:_LONGEST_ECHO]).split()]
    runs = frozenset(zip(texts, texts[1:], texts[2:], strict=False))
    return _Repeated(frozenset(texts), runs, any(map(_is_negation, texts)))


def _is_negation(text: str) -> bool:
    return text in NEGATIONS or text.endswith("n't")
