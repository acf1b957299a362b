"""The parts of a text between marks and conjunctions, for the rules that compare parts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeAlias

from rag_rewards.text.lazy import lazy
from rag_rewards.text.strict.assertion_words import ALTERNATIVES, COORDINATORS, PAIRED
from rag_rewards.text.words import Word

Span: TypeAlias = tuple[int, int]
"""A half-open range of positions of words."""

_JOINING = COORDINATORS | ALTERNATIVES | PAIRED
_MAX_UNITS = 64
_UNIT_ENDS = frozenset(".!?;\n。！？；")


class Parts:
    """The parts of a text, as half-open ranges of positions of words. They are read on first use.

    words  the words of the text
    """

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words

    @lazy
    def texts(self) -> list[str]:
        """The words without marks."""
        return [word.text for word in self.words]

    @lazy
    def _borders(self) -> list[int]:
        """The positions of the words beside which a part can begin or end."""
        return [
            at
            for at, word in enumerate(self.words)
            if word.after or word.before or word.text in _JOINING
        ]

    @lazy
    def segments(self) -> list[Span]:
        """The runs of words between marks and between conjunctions of any kind."""
        segments, start = [], 0
        for at in self._borders:
            word = self.words[at]
            joins = word.text in _JOINING
            if joins or (at > start and word.before):
                if at > start:
                    segments.append((start, at))
                start = at + 1 if joins else at
            if not joins and word.after and word.after.strip("'"):
                segments.append((start, at + 1))
                start = at + 1
        return self._with_rest(segments, start)

    @lazy
    def _starts(self) -> list[int]:
        return [start for start, _ in self.segments]

    def segment_at(self, at: int) -> int:
        """Return the number of the last segment that begins at a word or before it, or -1."""
        return bisect_right(self._starts, at) - 1

    @lazy
    def clauses(self) -> list[Span]:
        """The runs of words between marks after a word and coordinating conjunctions."""
        clauses, start = [], 0
        for at in self._borders:
            word = self.words[at]
            if word.text in COORDINATORS:
                if at > start:
                    clauses.append((start, at))
                start = at + 1
            elif word.after and word.after.strip("'"):
                clauses.append((start, at + 1))
                start = at + 1
        return self._with_rest(clauses, start)

    @lazy
    def units(self) -> list[Span]:
        """The first sentences, lines and parts between semicolons."""
        units, start = [], 0
        for at in self._borders:
            word = self.words[at]
            if word.after and ends_unit(word):
                units.append((start, at + 1))
                start = at + 1
                if len(units) == _MAX_UNITS:
                    return units
        return self._with_rest(units, start)

    def _with_rest(self, parts: list[Span], start: int) -> list[Span]:
        if start < len(self.words):
            parts.append((start, len(self.words)))
        return parts


def ends_unit(word: Word) -> bool:
    """Return whether a sentence, a line or a part before a semicolon ends after a word."""
    if word.after.startswith(".") and (len(word.text) < 3 or "." in word.text):
        return word.text.isdecimal()  # otherwise it is an initial or an abbreviation
    return not _UNIT_ENDS.isdisjoint(word.after)
