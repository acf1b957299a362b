"""Whether a text asserts what it mentions, according to the words around the mention."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import islice, takewhile

from rag_rewards.text.normalize import ARTICLES
from rag_rewards.text.strict.acronyms import is_acronym
from rag_rewards.text.strict.assertion_words import (
    AUXILIARIES,
    BEFORE_PLACE,
    COPULAS,
    NAMING,
    NEGATIONS,
    NOT_AN_ITEM,
    PLACES,
    QUESTION_MARKS,
    QUOTE,
)
from rag_rewards.text.strict.candidates import Candidates
from rag_rewards.text.strict.capitals import Capitals
from rag_rewards.text.strict.denials import Denials
from rag_rewards.text.strict.enumerations import Enumerations, is_majority
from rag_rewards.text.strict.parts import Parts, Span
from rag_rewards.text.strict.questions import Echo
from rag_rewards.text.strict.relations import is_loser, is_relation
from rag_rewards.text.strict.reports import is_reported
from rag_rewards.text.words import Word


class Assertions:
    """Tests whether the words around a mention make it an assertion.

    parts     the words of the text and its parts
    required  number of answers that the question asks for
    echo      whether each word repeats the question; such a word neither denies an answer nor
              names another one
    capitals  the words with capitals
    candidates  which words can be an answer
    """

    def __init__(
        self,
        parts: Parts,
        required: int,
        echo: Echo,
        capitals: Capitals,
        candidates: Candidates,
    ) -> None:
        words = parts.words
        self._parts = parts
        self.words = words
        self.required = required
        self.echo = echo
        self._candidates = candidates
        self._denials = Denials(words, echo, capitals)
        self._enumerations = Enumerations(words, required, candidates, echo)

    def asserts(self, first: int, last: int, gold: AbstractSet[int] = frozenset()) -> bool:
        """Return whether the text asserts the words from `first` to `last`.

        `gold` contains the positions of the words of all mentions of the same answer.
        """
        words = self.words
        return not (
            self._denials.deny(first, last)
            or is_reported(words, first, last, self.echo)
            or (self._candidates.asks_for_winner and is_loser(words, first))
            or is_relation(words, first, last, self._candidates.question)
            or self._enumerations.contain(first, last, gold)
            or _in_question(words, last)
            or _quoted(words, first, last)
            or _overruled(words, last)
            or self._side_by_side(first, last)
            or self._in_turn(first, last, gold)
            or (self._one_of_many(first, last, gold) and not is_acronym(words, first))
        )

    def _side_by_side(self, first: int, last: int) -> bool:
        """Return whether the text is a row of names without marks: "Rome Paris Berlin"."""
        words = self.words
        if first == 0 or last + 1 == len(words) or len(words) > 12:
            return False
        plain = not any(word.after or word.before for word in words[:-1])
        return plain and not any(
            word.text in NOT_AN_ITEM or word.text in ARTICLES or word.text in AUXILIARIES
            for word in words
        )

    def _segment_of(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of the segments that contain a mention ("March 8, 2018" spans two)."""
        at, to = self._parts.segment_at(first), self._parts.segment_at(last)
        if at < 0:
            return first, last + 1
        return min(self._parts.segments[at][0], first), max(self._parts.segments[to][1], last + 1)

    def _in_turn(self, first: int, last: int, gold: AbstractSet[int]) -> bool:
        """Return whether several sentences are a name: "The answer is Rome. Paris. Berlin."."""
        at = self._parts.segment_at(first)
        if at < 0 or self._parts.segments[at][1] != last + 1:
            return False
        left = right = at
        while (
            right + 1 < len(self._parts.segments)
            and right - at < _MAX_NAMES
            and self._bare(right + 1)
        ):
            right += 1
        # The sentence before the run ends with the first name.
        while left and at - left < _MAX_NAMES and self._bare(left):
            left -= 1
        others = [*self._parts.segments[left:at], *self._parts.segments[at + 1 : right + 1]]
        return 1 + len(others) >= max(3, self.required + 1) and not is_majority(others, gold)

    def _bare(self, at: int) -> bool:
        start, end = self._parts.segments[at]
        ends = self.words[start - 1].after if start else "."
        ended = self.words[end - 1].after if end < len(self.words) else "."
        return (
            end - start <= 2
            and self.words[start].text not in NOT_AN_ITEM
            and self.words[start].text not in NEGATIONS
            and not _ANY_END.isdisjoint(ends)
            and not _ANY_END.isdisjoint(ended)
        )

    def _one_of_many(self, first: int, last: int, gold: AbstractSet[int]) -> bool:
        """Return whether similar segments name other answers ("It is Rome. It is Paris.")."""
        start, end = self._segment_of(first, last)
        texts = self._parts.texts
        prefix, suffix = texts[start:first], texts[last + 1 : end]
        if not prefix and not suffix:
            return self._one_of_many_names(start, end, gold)
        frame = len(prefix) + len(suffix)
        own = self.words[first].text
        names: dict[str, Span] = {}
        for a, b in islice(self._parts.segments, _MAX_SEGMENTS):
            if a >= start:
                break
            if not 0 < b - a - frame <= 4:
                continue
            here = texts[a:b]
            if len(suffix) == 2 and suffix[0] in PLACES:  # "Rome in Italy, Paris in France"
                here[-1] = suffix[1]
            if here[: len(prefix)] != prefix or (suffix and here[-len(suffix) :] != suffix):
                continue
            name = here[len(prefix)]
            if name != own and name not in NEGATIONS and not self._is_echo(a, b):
                names.setdefault(name, (a, b))  # "It is not Rome. It is Paris."
        enough = self.required if frame > 1 else max(2, self.required)
        return 1 + len(names) > enough and not is_majority([*names.values()], gold)

    def _one_of_many_names(self, start: int, end: int, gold: AbstractSet[int]) -> bool:
        """Return whether a name without other words is beside other names ("Rome: Paris: Oslo")."""
        at = self._parts.segment_at(start)
        to = self._parts.segment_at(end - 1)
        mention = self._candidates.head(start, end - 1)
        is_count = mention.text[:1].isdecimal() and "(" in self._marks_after(end - 1)
        before = takewhile(self._is_name, range(at - 1, -1, -1))
        after = takewhile(self._is_name, range(to + 1, len(self._parts.segments)))
        names: dict[str, Span] = {}
        for i in (*islice(before, _MAX_NAMES), *islice(after, _MAX_NAMES)):
            if is_count and not self.words[self._parts.segments[i][0]].text[:1].isdecimal():
                continue  # "3 (Rome, Paris and Bonn)"
            if self._candidates.is_item(self._parts.segments[i], mention):
                names.setdefault(
                    self.words[self._parts.segments[i][0]].text, self._parts.segments[i]
                )
        names.pop(self.words[start].text, None)
        return 1 + len(names) > max(2, self.required) and not is_majority([*names.values()], gold)

    def _marks_after(self, at: int) -> str:
        following = self.words[at + 1].before if at + 1 < len(self.words) else ""
        return self.words[at].after + following

    def _is_name(self, at: int) -> bool:
        """Return whether a segment can be another answer: up to three words of its own."""
        start, end = self._parts.segments[at]
        text = self.words[start].text
        return (
            end - start <= 3
            and text not in ARTICLES
            and text not in NOT_AN_ITEM
            and text not in NEGATIONS
            and text not in NAMING
            and not self._is_echo(start, end)
        )

    def _is_echo(self, start: int, end: int) -> bool:
        """Return whether words repeat the question."""
        return self.echo.covers(start, end) or self._candidates.is_repeated((start, end))


_MAX_SEGMENTS = 512
_MAX_NAMES = 24  # on one side of a mention


def _in_question(words: Sequence[Word], last: int) -> bool:
    """Return whether the sentence of the mention is a question."""
    for word in words[last : last + 40]:
        if not word.after:
            continue
        if not QUESTION_MARKS.isdisjoint(word.after):
            return True
        if not _SENTENCE_ENDS.isdisjoint(word.after):
            return False
    return False


_SENTENCE_ENDS = frozenset(".!。！\n")
_ANY_END = _SENTENCE_ENDS | QUESTION_MARKS


def _quoted(words: Sequence[Word], first: int, last: int) -> bool:
    """Return whether the mention is part of a longer quotation. An article does not count.

    A quotation has an end; the other mark of the last quotation can be missing from the text.
    """
    first = _start_of_phrase(words, first)
    if words[last].after.startswith(":") and words[first].before and first:
        return words[first - 1].text not in COPULAS | NAMING  # "is "Bonn: A City""
    opened = sum(
        char in QUOTE
        for word in words[max(first - 60, 0) : first]
        if word.before or word.after
        for char in word.before + word.after
    )
    before = sum(char in QUOTE for char in words[first].before)
    after = sum(char in QUOTE for char in words[last].after)
    if (opened + before) % 2 == 0 or (before and after):
        return False
    return bool(after) or any(
        not QUOTE.isdisjoint(word.before + word.after) for word in words[last + 1 : last + 60]
    )


def _start_of_phrase(words: Sequence[Word], first: int) -> int:
    """Return where a quotation begins if only function words precede a mention in it."""
    for at in range(first - 1, max(first - 4, -1), -1):
        if words[at].after.strip(".") or words[at].text not in _BEFORE_NOUNS:
            break  # "A. Reed" begins with an initial that looks like an article
        if words[at].before:
            return at
    return first


_BEFORE_NOUNS = ARTICLES | PLACES | BEFORE_PLACE
_REMARKS = frozenset(("based", "found", "given", "stated", "supported", "taken"))


def _overruled(words: Sequence[Word], last: int) -> bool:
    """Return whether a later "the answer is …" gives another answer."""
    rest = words[last + 1 : last + 200]
    for i in range(len(rest) - 2):
        if rest[i].text == "answer" and rest[i + 1].text in ("is", "was"):
            if rest[i + 2].text in _REMARKS or (i and rest[i - 1].text == "this"):
                continue  # "This answer is based on document 3."
            answer = [word.text for word in rest[i + 2 : i + 14]]
            return words[last].text not in answer
    return False
