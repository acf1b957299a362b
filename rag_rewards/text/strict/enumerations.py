"""Whether a mention is one of several answers: alternatives, pairs and lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from rag_rewards.text.normalize import ARTICLES
from rag_rewards.text.strict.assertion_words import (
    ALTERNATIVES,
    BEFORE_PLACE,
    CLAUSE_ENDS,
    COORDINATORS,
    COPULAS,
    FUNCTION_WORDS,
    HEDGES,
    LIST_MARKS,
    MAX_ITEM_WORDS,
    NAMING,
    NEGATIONS,
    NOT_AN_ITEM,
    OPEN_ENDED,
    OPENERS,
    PAIRING,
    SINGULAR_VERBS,
    SPECIFYING,
    VERB_PREPOSITIONS,
)
from rag_rewards.text.strict.candidates import Candidates, stem
from rag_rewards.text.strict.parts import Span
from rag_rewards.text.strict.questions import Echo
from rag_rewards.text.words import Word

_DAY = re.compile(r"\d{1,2}(?:st|nd|rd|th)?", re.ASCII)
_YEAR = re.compile(r"\d{4}", re.ASCII)
_LONGEST_CLAUSE = 8  # words
_PARTS_FOLLOW = frozenset(("including", "between"))
_MAX_ITEMS = 24  # on one side of a mention; a longer list is a guess whatever it contains
_MAX_RUNS = 256  # the same for runs of words that are no items


class Enumerations:
    """Tests whether a mention is one of several answers in its clause.

    required    number of answers that the question asks for
    candidates  which words can be an answer
    echo        whether each word repeats the question; such a word joins nothing
    """

    def __init__(
        self,
        words: Sequence[Word],
        required: int,
        candidates: Candidates,
        echo: Echo,
    ) -> None:
        self._words = words
        self._required = required
        self._candidates = candidates
        self._echo = echo

    def contain(self, first: int, last: int, gold: AbstractSet[int]) -> bool:
        """Return whether the mention is one of two alternatives, or an item of a longer list.

        `gold` contains the positions of the words of all mentions of the gold answer.
        """
        words = self._words
        if self._begins_clause(first):
            return False
        left, left_or = self._items(first, -1, first)
        right, right_or = self._items(last, +1, first)
        others = [*left, *right]
        if others and is_majority(others, gold):
            return False
        if self._required == 1 and (
            self._is_second_of_pair(first, last) or self._is_undecided(first, last)
        ):
            return True
        enough = max(3, self._required + 1)
        if left_or or 1 + len(left) >= enough:
            return True
        if not left and not right_or and _has_apposition(words, first, last):
            return False
        if right_or and len(right) == 1 and _is_named(words, first):
            return False
        return right_or or 1 + len(others) >= enough

    def _items(self, edge: int, step: int, first: int) -> tuple[list[Span], bool]:
        """Return the further items on one side of the mention, and whether "or" joins them.

        An item is a run of a few words between list marks or conjunctions. An apposition
        ("Paris, the capital, …") counts only if a conjunction shows that this is a list.
        """
        words = self._words
        if not _can_be_joined(words, edge, step):
            return [], False
        mention = self._candidates.head(*sorted((edge, first)))
        items: list[Span] = []
        appositions: list[Span] = []
        joined = alternative = False
        for number, (joint, start, end) in enumerate(_runs(words, edge, step, self._echo)):
            if number == 0:
                if any(word.text not in HEDGES for word in words[start:end]):
                    break  # the mention is part of a longer phrase on this side
                continue
            if number == _MAX_RUNS:
                alternative = True
                break
            if joint in ALTERNATIVES and not self._is_other_form(edge, start, end, step, first):
                alternative = True
            joined = joined or joint in COORDINATORS or joint in ALTERNATIVES or joint == "\n"
            if step < 0:
                start = _after_copula(words, start, end)
            if start == end:
                continue
            if words[start].text in NOT_AN_ITEM or (step > 0 and end - start > MAX_ITEM_WORDS):
                break
            if step > 0 and (_is_predicate(words, start, end) or _specifies(words, start)):
                break  # "written by Anna Reed and sung by Tom Hill", "in Bonn, especially in Beuel"
            if not self._candidates.is_item((start, end), mention):
                continue
            is_apposition = step > 0 and words[start].text in ARTICLES
            (appositions if is_apposition else items).append((start, end))
            if end - start > MAX_ITEM_WORDS or len(items) == _MAX_ITEMS:
                break
        return items + (appositions if joined else []), alternative

    def _is_other_form(self, edge: int, start: int, end: int, step: int, first: int) -> bool:
        """Return whether "or" after a mention begins no other answer.

        Examples: "8 years or until 2000", "5 or more", "24 hours or 1 day", "Bonn (or Beuel)".
        """
        words = self._words
        if step < 0 or start == end:
            return False
        if words[edge + 1].before.startswith("("):
            return True
        item, is_number = words[start].text, words[first].text[:1].isdecimal()
        if item in OPEN_ENDED:
            return is_number or end - start == 1
        has_units = is_number and edge > first and end - start > 1
        is_amount = item[:1].isdecimal() or item == "one"
        return has_units and is_amount and words[end - 1].text != words[edge].text

    def _is_second_of_pair(self, first: int, last: int) -> bool:
        """Return whether a mention is the second of two answers.

        A name that the question contains is no answer: "Who sang it with Hill?", "Hill and Reed".
        The alternatives of a question are answers.
        """
        words, candidates = self._words, self._candidates
        if not _second_of_pair(words, first, last):
            return False
        own = {word.text for word in words[first : last + 1]}
        at = first - 1
        while at > 0 and (words[at].text in PAIRING or words[at].text in ARTICLES):
            at -= 1
        start = at
        while start >= 0 and at - start < 4 and words[start].text not in FUNCTION_WORDS:
            if start < at and words[start].after:
                break
            start -= 1
        if candidates.is_choice or any(map(candidates.is_asked, range(first, last + 1))):
            return True
        return not any(
            candidates.is_asked(each) and words[each].text not in own
            for each in range(start + 1, at + 1)
        )

    def _is_undecided(self, first: int, last: int) -> bool:
        """Return whether a mention and "and" join both alternatives of the question."""
        words, at = self._words, last + 1
        if not self._candidates.is_choice or at + 1 >= len(words) or words[last].after:
            return False
        pairs = words[at].text in PAIRING and self._candidates.is_asked(at + 1)
        return pairs and self._candidates.is_asked(first)

    def _begins_clause(self, first: int) -> bool:
        """Return whether a mention is in a clause of its own that repeats words of the question.

        In "Reed played guitar, and Hill was the drummer", the clause before it has a predicate and
        repeats none of them.
        """
        words, candidates = self._words, self._candidates
        end = first - 1
        if end < 2 or words[end].text not in COORDINATORS or words[end].after:
            return False
        start = end - 1
        while start and not words[start - 1].after and end - start < _LONGEST_CLAUSE:
            start -= 1
        subjects = words[start].text, words[first].text
        if any(text in FUNCTION_WORDS or not candidates.is_name(text) for text in subjects):
            return False
        before = [word.text for word in words[start:end] if not candidates.is_name(word.text)]
        after = {stem(word.text) for word in words[first : first + _LONGEST_CLAUSE]}
        return (
            any(text in COPULAS or text not in FUNCTION_WORDS for text in before)
            and candidates.question.isdisjoint(map(stem, before))
            and not candidates.question.isdisjoint(after)
        )


def is_majority(others: Sequence[Span], gold: AbstractSet[int]) -> bool:
    """Return whether more than half of the items of a list are mentions of the gold answer.

    A list can contain such a majority for one answer only. `others` are the items beside the
    mention, as half-open ranges of positions.
    """
    mentions = 1 + sum(not gold.isdisjoint(range(*item)) for item in others)
    return 2 * mentions > 1 + len(others)


def _second_of_pair(words: Sequence[Word], first: int, last: int) -> bool:
    """Return whether the mention is the second of two answers to a question that asks for one.

    Only the first one counts, so that "Rome and Paris" is one answer. In "Rome is large and Paris
    is the capital", a clause begins with the mention.
    """
    at = first - 1
    while at > 0 and (words[at].text in ARTICLES or words[at].text in HEDGES):
        at -= 1
    if at < 1 or words[at].text not in PAIRING or words[at].after:
        return _second_of_two_names(words, first, last)
    following = words[last + 1].text if last + 1 < len(words) and not words[last].after else ""
    return following not in SINGULAR_VERBS or _begins_clause(words, at)


def _begins_clause(words: Sequence[Word], at: int) -> bool:
    """Return whether only a name precedes a conjunction in its clause: "Rome and Paris are"."""
    before = []
    for word in reversed(words[max(at - 4, 0) : at]):
        if word.after:
            break
        before.append(word.text)
    return len(before) < 4 and NOT_AN_ITEM.isdisjoint(before) and SINGULAR_VERBS.isdisjoint(before)


def _second_of_two_names(words: Sequence[Word], first: int, last: int) -> bool:
    """Return whether the text consists of two names and a comma: "Rome, Paris"."""
    if not 1 <= first <= 3 or last + 1 < len(words) or words[0].text in OPENERS:
        return False
    if any(len(word.pieces) > 4 for word in words):
        return False  # a clause of a script without spaces is one word
    is_pair = words[first - 1].after.startswith((",", ";")) and not any(
        word.after for word in words[: first - 1]
    )
    return is_pair and not any(
        word.text in NOT_AN_ITEM or word.text in NEGATIONS for word in words[:first]
    )


def _has_apposition(words: Sequence[Word], first: int, last: int) -> bool:
    """Return whether the words after a mention describe it, so that they name no other answer.

    Examples: "by Ann Reed, a writer and painter", "in Bonn, Rhineland, Germany".
    """
    if last + 1 >= len(words) or not words[last].after.startswith((",", " –")):
        return False
    following, at = words[last + 1].text, first - 1
    if at > 0 and words[at].text in ARTICLES:
        at -= 1
    return (
        following in ARTICLES
        or following[:1].isdigit()
        or (at >= 0 and words[at].text in BEFORE_PLACE)
    )


def _is_predicate(words: Sequence[Word], start: int, end: int) -> bool:
    """Return whether a run begins with a verb and a preposition: "raised in Lyon"."""
    return (
        end - start > 2
        and words[start + 1].text in VERB_PREPOSITIONS
        and words[start].text.endswith(("ed", "en", "wn", "ew", "sung", "made", "built", "born"))
    )


def _specifies(words: Sequence[Word], start: int) -> bool:
    """Return whether a run says more about the mention: "including …", "especially in …"."""
    text = words[start].text
    if text in _PARTS_FOLLOW:
        return True
    following = words[start + 1].text if start + 1 < len(words) else ""
    return text in SPECIFYING and (following in NOT_AN_ITEM or following in _PARTS_FOLLOW)


def _is_named(words: Sequence[Word], first: int) -> bool:
    """Return whether a mention is a name that has other forms: "known as the uvea or tract"."""
    return not NAMING.isdisjoint(word.text for word in words[max(first - 3, 0) : first])


def _after_copula(words: Sequence[Word], start: int, end: int) -> int:
    """Return where an item begins in a run that also contains the subject ("They are Rome")."""
    return next((at + 1 for at in range(end - 2, start, -1) if words[at].text in COPULAS), start)


def _runs(
    words: Sequence[Word], edge: int, step: int, echo: Echo
) -> Iterator[tuple[str, int, int]]:
    """Yield the runs of words on one side of a position, up to the end of the clause.

    Each run has the mark or word that joins it to the run before it. The first item of a list can
    contain the sentence before the list ("The answer is Rome, …"). Only the last words of such a
    run are returned, and it is the last run.
    """
    joint, begin, at = "", edge + step, edge
    while 0 <= at + step < len(words) and abs(at + step - begin) <= MAX_ITEM_WORDS:
        here = min(at, at + step)
        mark, ends = _between(words[here], words[here + 1])
        if ends:
            break
        at += step
        word = words[at].text
        joins = word in ALTERNATIVES or (word in COORDINATORS and not echo[at])
        if mark or joins:
            yield joint, *_span(begin, at - step, step)
            if mark and joins:
                yield mark, at, at
            joint, begin = (word, at + step) if joins else (mark, at)
    yield joint, *_span(begin, at, step)


def _can_be_joined(words: Sequence[Word], edge: int, step: int) -> bool:
    """Return whether a mark or a joining word is beside a position, so that items can follow."""
    if not 0 <= edge + step < len(words):
        return False
    here = min(edge, edge + step)
    return bool(
        words[edge + step].text in _BEFORE_ITEMS or words[here].after or words[here + 1].before
    )


_BEFORE_ITEMS = HEDGES | ALTERNATIVES | COORDINATORS


def _span(begin: int, end: int, step: int) -> Span:
    """Return the half-open range from one position to another one in the direction of a step."""
    return (begin, end + 1) if step > 0 else (end, begin + 1)


def _between(word: Word, following: Word) -> tuple[str, bool]:
    """Return the list mark between two words, and whether the marks there end a list."""
    written = word.after + following.before
    if not written:
        return "", False
    mark = next((char for char in written if char in LIST_MARKS), "")
    if mark == "," and _DAY.fullmatch(word.text) and _YEAR.fullmatch(following.text):
        return "", False  # "May 5, 1999"
    ends = not mark and not CLAUSE_ENDS.isdisjoint(written.replace("(", "").replace(")", ""))
    return mark, ends
