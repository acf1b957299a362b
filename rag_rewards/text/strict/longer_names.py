"""Whether a mention is only part of a longer number or name.

"5 million" does not mention 5, "New York" does not mention York, and "Henry VIII" is another person
than Henry. The words directly beside the mention decide. A noun that names a kind of thing, or that
the question contains, does not make a name longer ("the Nile River", "Rugby School").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rag_rewards.text.lazy import lazy
from rag_rewards.text.normalize import fold
from rag_rewards.text.quantities import MONTHS, NUMBER_WORDS, SCALES
from rag_rewards.text.words import EDGES, Word

# A regnal number or the suffix of a name. "I", "V" and "X" alone are rather initials or pronouns.
_SUFFIX = re.compile(r"(?:ii|iii|iv|vi|vii|viii|ix|xi|xii|xiii|xiv|xv|xvi|jr|sr)")
_SHORT_NUMBER = re.compile(r"\d{1,2}", re.ASCII)
_NUMBER = re.compile(r"[-+]?\d[\d.,]*", re.ASCII)
_YEAR = re.compile(r"\d{4}", re.ASCII)
_FRACTION = re.compile(r"\d+", re.ASCII)
_GROUP, _FIRST_GROUP = re.compile(r"\d{3}", re.ASCII), re.compile(r"\d{1,3}", re.ASCII)  # 1 300
_DISTRICT = re.compile(r"d\.? ?c\.?")
_SIGNS = frozenset(("minus", "negative"))
_ERAS = frozenset(("bc", "bce", "b.c", "b.c.e"))
# "8 dozen", "8 and a half", "8 × 10^3"
_MULTIPLIERS = frozenset("dozen dozens score gross x × * ^ ÷ + =".split())
_FRACTIONS = frozenset(("half", "quarter", "third", "quarters", "thirds"))
_QUALIFIERS = frozenset(
    "new north south east west northern southern eastern western saint st san santa los las el "
    "papua equatorial lake mount port fort".split()
)
_KINDS = frozenset(
    "airport avenue bay bridge canal cathedral city club coast company corp corporation county "
    "country court desert district empire family fc games gulf hotel inc island islands kingdom "
    "language ltd mountain mountains museum national ocean olympics palace park party peninsula "
    "people province pub racecourse region republic river school sea state stadium station street "
    "strait team theatre theater town tribe university valley village winter summer "
    "also and but is it the this".split()
)
# Words of a question for a person, whose first name can be an answer.
_PERSON_WORDS = frozenset(
    "who whom whose who's person people man woman boy girl brother brothers sister sisters son "
    "sons daughter daughters father mother parents wife husband actor actors actress singer "
    "singers author writer poet composer painter artist architect scientist inventor president "
    "king queen emperor pope prince princess player captain director producer presenter host "
    "character characters member members detective politician".split()
)
# Two adjacent words of which both have a capital.
_CAPITALS = re.compile(r"([A-Z](?<![\w'’.-].)[\w'’.-]{0,40}) (?=([A-Z][\w'’-]{0,40}))")


class LongerNames:
    """Tests whether a mention is part of a longer number or name.

    text      the text as it is written, with capitals
    question  the text of the question; the answer to a question for a person may be a first name
    """

    def __init__(self, words: Sequence[Word], text: str, question: str) -> None:
        self._words = words
        self._text = text
        self._question = question

    def contain(self, first: int, last: int) -> bool:
        """Return whether the words from `first` to `last` are part of a longer number or name."""
        words = self._words
        before = words[first - 1] if first else None
        after = words[last + 1] if last + 1 < len(words) else None
        if after is not None and self._continues(first, last, after):
            return True
        return before is not None and self._begins_before(before, first, last)

    def _continues(self, first: int, last: int, after: Word) -> bool:
        word, marks = self._words[last], self._words[last].after + after.before
        if _is_number(word.text):
            return (
                self._is_range(last, last + 2)
                or self._has_fraction(last)
                or _continues_number(word.text, marks, after, is_alone=first == last)
            )
        if marks.strip(","):
            return False
        if _SUFFIX.fullmatch(after.text) or _DISTRICT.fullmatch(after.text):
            return True
        if marks or word.text in MONTHS:
            return False
        if _SHORT_NUMBER.fullmatch(after.text):
            return (word.text, after.text) in self._numbered
        return (
            after.text not in _KINDS
            and (word.text, after.text) in self._capitals
            and after.text not in self._question_words
            and (first < last or self._question_words.isdisjoint(_PERSON_WORDS))
        )

    def _begins_before(self, before: Word, first: int, last: int) -> bool:
        word = self._words[first]
        if before.after or word.before:
            return False
        if _is_number(word.text):
            is_alone = first == last
            return bool(
                before.text in _SIGNS
                or self._is_range(first - 2, first)
                or (_is_number(before.text) and word.text in NUMBER_WORDS)
                or (_GROUP.fullmatch(word.text) and _FIRST_GROUP.fullmatch(before.text))
                or (is_alone and before.text in MONTHS and not _YEAR.fullmatch(word.text))
            )
        return (
            first == last
            and before.text in _QUALIFIERS
            and (before.text, word.text) in self._capitals
        )

    def have_capitals(self, first: int, second: int) -> bool:
        """Return whether two adjacent words have capitals, or the second one is an initial."""
        if len(self._words[second].text.strip(".")) == 1:
            return True
        return (self._words[first].text, self._words[second].text) in self._capitals

    def _has_fraction(self, last: int) -> bool:
        """Return whether "and a half" follows."""
        following = [word.text for word in self._words[last + 1 : last + 4]]
        return following[:1] == ["and"] and not _FRACTIONS.isdisjoint(following[2:])

    def _is_range(self, start: int, end: int) -> bool:
        """Return whether "to" joins two numbers that are no years: "5 to 7"."""
        words = self._words
        if start < 0 or end >= len(words) or words[start + 1].text != "to":
            return False
        texts = words[start].text, words[end].text
        return all(_is_number(text) and not _YEAR.fullmatch(text) for text in texts)

    @lazy
    def _question_words(self) -> frozenset[str]:
        return _words_of(self._question)

    @lazy
    def _capitals(self) -> frozenset[tuple[str, str]]:
        """The pairs of adjacent words with capitals, in lower case."""
        return frozenset(
            (a.lower().strip(EDGES), b.lower().strip(EDGES))
            for a, b in _CAPITALS.findall(self._text)
            if not a.endswith(".")
        )

    @lazy
    def _numbered(self) -> frozenset[tuple[str, str]]:
        """The pairs of a word with a capital and a number of one or two digits."""
        return frozenset((a.lower(), b) for a, b in _NUMBERED.findall(self._text))


_NUMBERED = re.compile(r"([A-Z](?<![\w'’.-].)[\w'’-]{0,40}) (\d{1,2})(?!\w|\.\d)")


def _is_number(text: str) -> bool:
    return text in NUMBER_WORDS or _NUMBER.fullmatch(text.lstrip("$€£")) is not None


def _continues_number(number: str, marks: str, after: Word, *, is_alone: bool) -> bool:
    if "/" in marks:
        return _FRACTION.fullmatch(after.text) is not None and not _YEAR.fullmatch(number)
    if marks:
        return False
    if after.text in SCALES or after.text in _ERAS or after.text in _MULTIPLIERS:
        return True
    if _FRACTION.fullmatch(after.text) or (number in NUMBER_WORDS and after.text in NUMBER_WORDS):
        return not _YEAR.fullmatch(number)
    return is_alone and after.text in MONTHS and not _YEAR.fullmatch(number)


@lru_cache(maxsize=4096)
def _words_of(question: str) -> frozenset[str]:
    return frozenset(token.strip(EDGES) for token in fold(question[:10_000]).split())
