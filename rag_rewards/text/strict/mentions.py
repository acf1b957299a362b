"""Mentions of a gold answer in another form than the gold answer has.

A mention is a range of words. Its kind says how the words differ from the gold answer:

other form         numbers, accents, plurals, units, hyphens: "two" for 2, "Sao Paulo" for São Paulo
written together   "CocaCola" for Coca Cola, "JK Rowling" for J. K. Rowling
same date          "2 November 1999" for "November 2, 1999"
coarser date       "November 1999" or "1999", if the question asks when something happened
other order        all words within a few words: "Roberts, John" for John Roberts
shorter name       "Anna Reed" or "A. M. Reed" for Anna Maria Reed
most words         all words of four or more but one

None of them accepts another number, another first or last name, or a name that is not complete.
Time and memory are linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Literal, NamedTuple

from rag_rewards.text.lazy import lazy
from rag_rewards.text.strict.comparable_words import CURRENCIES, Comparable, comparable, is_number
from rag_rewards.text.strict.gold_words import FUNCTION_WORDS, GoldWords, root
from rag_rewards.text.strict.longer_names import LongerNames
from rag_rewards.text.strict.written_dates import WrittenDate, written_dates
from rag_rewards.text.words import Word, joined, positions_of

Kind = Literal[
    "exact",
    "other form",
    "written together",
    "same date",
    "coarser date",
    "other order",
    "shorter name",
    "most words",
]
_MAX_MENTIONS = 64  # of one kind
_MAX_PLACES = 64  # occurrences of one word
_EXTRA_WORDS = 3  # between the words of an answer
_LONGEST_NAME = 5  # words
# Between the words of an answer, they would name another answer or deny one.
_SEPARATING = frozenset(
    "not no never nor neither or and but versus vs than instead rather without except "
    "unlike".split()
)
_JOINING = frozenset(("and",))
_YEAR = re.compile(r"1\d{3}|20\d\d", re.ASCII)
# "50%" does not mention 50, "$5" does not mention 5, and "5-fold" neither.
_OF_NUMBERS = frozenset(("percent", "fold", "plus", *CURRENCIES))
_SENTENCE_MARKS = frozenset(".!?;:\n/|")


class Mention(NamedTuple):
    """The first and the last word of a mention, and its kind."""

    first: int
    last: int
    kind: Kind


class OtherForms:
    """The words of a text in a form that can be compared with gold answers.

    written  the words as they are written, before a rule reads them in another language
    time_question  a question that a date without the day or the month of the gold answer answers
    """

    def __init__(
        self,
        written: Sequence[str],
        words: Sequence[Word],
        names: LongerNames,
        time_question: str = "",
    ) -> None:
        self._written = written
        self._words = words
        self._names = names
        self._time_question = time_question

    def find(self, gold: GoldWords) -> Iterator[Mention]:
        """Yield the mentions of a gold answer."""
        yield from self._same_words(gold)
        if gold.together and not gold.is_one:
            yield from self._written_together(gold.together)
        if gold.date is not None:
            yield from self._dates(gold.date)
        elif gold.is_name:
            yield from self._persons(gold)
        elif len(gold.content) > 1:
            yield from self._any_order(gold)

    def date_at(self, first: int, last: int) -> WrittenDate | None:
        """Return the date that contains the words from `first` to `last`."""
        for date in self.dates:
            if self._text.first[date.first] <= first and last <= self._text.last[date.last]:
                return date
        return None

    @lazy
    def dates(self) -> list[WrittenDate]:
        return written_dates(self._text.words)

    @lazy
    def _text(self) -> Comparable:
        return comparable(self._written)

    @lazy
    def _joined(self) -> str:
        return joined(self._text.words)

    def _mention(self, first: int, last: int, kind: Kind) -> Mention:
        return Mention(self._text.first[first], self._text.last[last], kind)

    # --- the same words, in another form or without spaces ---------------------------------------

    def _same_words(self, gold: GoldWords) -> Iterator[Mention]:
        for words in gold.ordered:
            for at in islice(positions_of(joined(words), self._joined), _MAX_MENTIONS):
                if gold.is_one and at and is_number(self._text.words[at - 1]):
                    continue
                if len(words) > 1 or self._is_whole(at, words[0]):
                    yield self._mention(at, at + len(words) - 1, "other form")

    def _is_whole(self, at: int, word: str) -> bool:
        """Return whether a comparable word is not only part of a written word.

        "x-Paris-y" is no mention of Paris, and "5-7" none of 5; but "12-part" is one of 12. "One"
        is often a pronoun.
        """
        owners, owner = self._text.first, self._text.first[at]
        parts = [
            self._text.words[i]
            for i in range(max(at - 4, 0), min(at + 5, len(owners)))
            if i != at and owners[i] == owner
        ]
        if not is_number(word):
            return not parts
        if not _OF_NUMBERS.isdisjoint(parts) or any(map(is_number, parts)):
            return False
        return self._written[owner] != "one"

    def _written_together(self, needle: str) -> Iterator[Mention]:
        text = self._together
        at, found = text.find(needle), 0
        starts, ends = self._edges if at >= 0 else ({}, {})
        while at >= 0 and found < _MAX_MENTIONS:
            found += 1
            first, last = starts.get(at), ends.get(at + len(needle))
            if first is not None and last is not None:
                yield self._mention(first, last, "written together")
            at = text.find(needle, at + 1)

    @lazy
    def _together(self) -> str:
        return "".join(self._text.words)

    @lazy
    def _edges(self) -> tuple[dict[int, int], dict[int, int]]:
        """The places in the text without spaces where written words begin and end."""
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        length, text = 0, self._text
        for at, word in enumerate(text.words):
            if not at or text.first[at] != text.first[at - 1]:
                starts[length] = at
            length += len(word)
            if at + 1 == len(text.words) or text.last[at] != text.last[at + 1]:
                ends[length] = at
        return starts, ends

    # --- dates -----------------------------------------------------------------------------------

    def _dates(self, gold: WrittenDate) -> Iterator[Mention]:
        for date in islice((each for each in self.dates if each.is_same(gold)), _MAX_MENTIONS):
            yield self._mention(date.first, date.last, "same date")
        if gold.year and self._time_question and gold.year not in self._time_question:
            yield from self._years(gold)

    def _years(self, gold: WrittenDate) -> Iterator[Mention]:
        """Yield the mentions of the year of a date without another month or day.

        A text that names a further year does not say which one it means.
        """
        if self._years_in_text - {gold.year}:
            return
        for at in self._places.get(gold.year, ()):
            date = self._dates_by_end.get(at)
            if date is None:
                yield self._mention(at, at, "coarser date")
            elif gold.is_same(date):
                yield self._mention(date.first, date.last, "coarser date")

    @lazy
    def _years_in_text(self) -> frozenset[str]:
        """The years that the question does not contain."""
        years = {word for word in self._text.words if _YEAR.fullmatch(word)}
        return frozenset(year for year in years if year not in self._time_question)

    @lazy
    def _dates_by_end(self) -> dict[int, WrittenDate]:
        return {date.last: date for date in self.dates if date.year}

    # --- names -----------------------------------------------------------------------------------

    def _persons(self, gold: GoldWords) -> Iterator[Mention]:
        """Yield names with other middle names or initials, and "Reed, Anna"."""
        *given, last = gold.words
        words = self._text.words
        for at in self._places[root(last)] if root(last) in self._stem_set else ():
            for width in range(1, min(_LONGEST_NAME, at + 1)):
                if _fits(given, words[at - width : at]) and self._is_plain(at - width, at):
                    yield self._mention(at - width, at, "shorter name")
                    break
            end = at + len(given)
            if words[at + 1 : end + 1] == given and self._marks(at, at + 1).startswith(","):
                yield self._mention(at, end, "other order")

    def _is_plain(self, first: int, last: int) -> bool:
        """Return whether no mark but the full stop of an initial is inside.

        If there are more than two words, all must have capitals: "Anna met Reed" is no name.
        """
        for at in range(first, last):
            length = len(self._text.words[at])
            if self._marks(at, at + 1).strip("." if length < 4 else ""):  # "A." or "A.M."
                return False
            owners = self._text.last[at], self._text.first[at + 1]
            if last - first > 1 < length and not self._names.have_capitals(*owners):
                return False
        return True

    def _marks(self, first: int, last: int) -> str:
        """Return the marks between comparable words."""
        start, end = self._text.last[first], self._text.first[last]
        inside = self._words[start : end + 1]
        return "".join(word.after + following.before for word, following in pairwise(inside))

    # --- words in another order ------------------------------------------------------------------

    @lazy
    def _stems(self) -> list[str]:
        """The stem of each word."""
        return list(map(root, self._text.words))

    @lazy
    def _stem_set(self) -> frozenset[str]:
        return frozenset(self._stems)

    @lazy
    def _places(self) -> dict[str, list[int]]:
        """The positions of each stem."""
        places: dict[str, list[int]] = {}
        for at, stem in enumerate(self._stems):
            found = places.setdefault(stem, [])
            if len(found) < _MAX_PLACES:
                found.append(at)
        return places

    def _any_order(self, gold: GoldWords) -> Iterator[Mention]:
        content, width = gold.content, len(gold.words) + _EXTRA_WORDS
        stems = self._stem_set
        missing = [i for i, word in enumerate(content) if word not in stems]
        if not missing:
            for first, last in islice(self._windows(content, width), _MAX_MENTIONS):
                if self._fits(gold, first, last):
                    yield self._mention(first, last, "other order")
        elif len(content) > 3 and len(missing) == 1 and not is_number(content[missing[0]]):
            rest = (*content[: missing[0]], *content[missing[0] + 1 :])
            for first, last in islice(self._windows(rest, width), _MAX_MENTIONS):
                if self._fits(gold, first, last):
                    yield self._mention(first, last, "most words")

    def _windows(self, content: Sequence[str], width: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of at most `width` words that contain all stems."""
        places = sorted((at, i) for i, word in enumerate(content) for at in self._places[word])
        latest: dict[int, int] = {}
        for at, i in places:
            latest.pop(i, None)
            latest[i] = at  # a dict keeps the order of insertion
            if len(latest) == len(content):
                first = next(iter(latest.values()))
                if at - first < width:
                    yield first, at

    def _fits(self, gold: GoldWords, first: int, last: int) -> bool:
        """Return whether nothing inside a range separates its words."""
        inside = self._text.words[first : last + 1]
        extra = [word for word in inside if word not in gold.words]
        if not _SEPARATING.isdisjoint(extra) and not (gold.is_list and set(extra) <= _JOINING):
            return False
        if gold.has_number and any(is_number(word) for word in extra):
            return False
        marks = self._marks(first, last)
        return _SENTENCE_MARKS.isdisjoint(marks) and marks.count("(") == marks.count(")")


def _fits(given: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether given names can be the same, with initials or without middle names.

    The first names must be equal, or one the initial of the other and every further name too. An
    initial cannot be left out, and a name cannot be added: "George Bush" is not "George W. Bush",
    and "John Quincy Adams" is not "John Adams".
    """
    if not FUNCTION_WORDS.isdisjoint(names):
        return False
    if names[0] == given[0]:
        if len(names) == 1:
            return all(len(name) > 1 for name in given)
        if len(given) == 1:
            return all(len(name) == 1 for name in names[1:])
        return _agree(given[1:], names[1:])
    if len(names) == 1:  # "A.M. Reed"
        return len(given) > 1 and names[0] == "".join(name[0] for name in given)
    return len(given) == len(names) and _agree(given, names)


def _agree(given: Sequence[str], names: Sequence[str]) -> bool:
    return len(given) == len(names) and all(
        a == b or (a[0] == b[0] and 1 in (len(a), len(b)))
        for a, b in zip(given, names, strict=True)
    )
