"""Dates in comparable words: "2 November 1999", "November 2nd, 1999", "November 1999", "1999"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rag_rewards.text.strict.comparable_words import MONTH_NAMES, ROMAN, comparable, is_number

_DAY = re.compile(r"([12]?\d|3[01])(?:st|nd|rd|th)?", re.ASCII)
_YEAR = re.compile(r"\d{4}", re.ASCII)


class WrittenDate(NamedTuple):
    """A date, and the range of the comparable words that contain it. Missing parts are empty."""

    first: int
    last: int
    month: str
    day: str
    year: str

    def is_same(self, other: WrittenDate) -> bool:
        """Return whether this date contains all parts of another one, which may be coarser."""
        return all(
            not theirs or mine == theirs for mine, theirs in zip(self[2:], other[2:], strict=True)
        )

    def contradicts(self, other: WrittenDate) -> bool:
        """Return whether a part that both dates contain differs."""
        return any(
            mine and theirs and mine != theirs
            for mine, theirs in zip(self[2:], other[2:], strict=True)
        )

    def is_only(self, others: Sequence[WrittenDate]) -> bool:
        """Return whether no other date of the same year contradicts this one."""
        return not any(self.contradicts(other) for other in others if other.year == self.year)


def can_be_in_date(text: str) -> bool:
    """Return whether a written word can begin a part of a date."""
    return _can_be_in_date(text) if len(text) < 20 else _can_be_in_date.__wrapped__(text)


@lru_cache(maxsize=16384)
def _can_be_in_date(text: str) -> bool:
    words = comparable((text,)).words
    return not words or any(
        word in MONTH_NAMES or word == "of" or word in ROMAN or is_number(word) for word in words
    )


def written_dates(words: Sequence[str]) -> list[WrittenDate]:
    """Return the dates with a month.

    >>> for date in written_dates("2nd of november 1999 until may 2001".split()):
    ...     print(date)
    WrittenDate(first=0, last=3, month='november', day='2', year='1999')
    WrittenDate(first=5, last=6, month='may', day='', year='2001')
    """
    if MONTH_NAMES.isdisjoint(words):
        return []
    return [_date(words, at) for at, word in enumerate(words) if word in MONTH_NAMES]


def _date(words: Sequence[str], at: int) -> WrittenDate:
    first = last = at
    day = year = ""
    if at + 1 < len(words) and (match := _DAY.fullmatch(words[at + 1])):
        day, last = match[1], at + 1
    elif at and (match := _DAY.fullmatch(words[at - 1])):
        day, first = match[1], at - 1
    elif at > 1 and words[at - 1] == "of" and (match := _DAY.fullmatch(words[at - 2])):
        day, first = match[1], at - 2
    if last + 1 < len(words) and _YEAR.fullmatch(words[last + 1]):
        last += 1
        year = words[last]
    return WrittenDate(first, last, words[at], day, year)
