"""Decide whether an answer is right, wrong or undecided."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple

from rag_rewards.errors import shorten
from rag_rewards.matching.explanations import Explanations
from rag_rewards.matching.gold import (
    STEM,
    Alias,
    Gold,
    Required,
    read_gold,
    required_answers,
)
from rag_rewards.matching.plain import is_plain, plain_rest, read_plain_gold
from rag_rewards.matching.question import EXTENDERS, read_question
from rag_rewards.matching.reading import (
    has_accents,
    mark_mentions,
    mark_names,
    marked_answer,
    read_words,
    without_formatting,
)
from rag_rewards.matching.tables import tables
from rag_rewards.matching.values import Value, Word, compare
from rag_rewards.text.hidden import is_unreadable, shown
from rag_rewards.text.normalize import fold
from rag_rewards.text.refusal import is_refusal

LONGEST_ANSWER = 10_000
"""The number of characters of the longest answer that is read. Longer ones are undecided."""
_MOST_WORDS_OF_REASON = 8
_LONGEST_WORD_OF_REASON = 100  # characters


class AnswerDecision(NamedTuple):
    """The decision on an answer.

    value   `right`, `wrong` or `undecided`
    reason  why, in a few words; for an undecided answer the words that nothing explains
    """

    value: Literal["right", "wrong", "undecided"]
    reason: str


_EQUAL = AnswerDecision("right", "equal")
_EXPLAINED = AnswerDecision("right", "explained")
_EMPTY = AnswerDecision("wrong", "empty")
_REFUSAL = AnswerDecision("wrong", "refusal")
_OTHER_VALUE = AnswerDecision("wrong", "another value")
_NOTHING = AnswerDecision("undecided", "nothing in common")
_UNSEEN = AnswerDecision("undecided", "text that a reader does not see")
_MISREAD = AnswerDecision("undecided", "letters of two scripts, or raised digits")
_POSSESSION = re.compile(r"(?:['’]s|s['’]) (\w+)")
_MISLEADING = re.compile(
    "[A-Za-z][\u0370-\u03ff\u0400-\u052f]|[\u0370-\u03ff\u0400-\u052f][A-Za-z]"
    "|(?<=[A-Za-z])(?<!m)[\u00b2\u00b3\u00b9\u2070\u2074-\u2079]"
)
"""A word of two scripts, or a raised digit after a letter, which is no digit but in units."""


def decide(
    answer: str | None,
    gold: str | Sequence[str] | Sequence[Sequence[str]],
    question: str = "",
    context: Sequence[str] = (),
) -> AnswerDecision:
    """Return whether an answer is right, wrong or undecided.

    An answer is right if it contains the gold answer and everything else in it is explained. It is
    wrong if it is empty, a refusal, or a value of the same kind that differs. Every other answer
    is undecided.

    answer    the text of the answer; None if the form of the response has none
    gold      the aliases of one answer, or a list of aliases for each required answer
    question  the question, whose words an answer may repeat
    context   texts that can show that a country or state belongs to a place: "Paris, France"

    Raises DataError if all aliases of a required answer have no letter or digit, and the answer
    does not equal one of them. The time is linear in the length of the answer.

    >>> decide("It is Paris.", ["Paris"], "What is the capital of France?")
    AnswerDecision(value='right', reason='explained')
    >>> decide("Paris or Rome", ["Paris"])
    AnswerDecision(value='undecided', reason='or, rome')
    >>> decide("1999", ["1998"])
    AnswerDecision(value='wrong', reason='another value')
    """
    if answer is None or not answer.strip():
        return _EMPTY
    required = required_answers(gold)
    return _plain_decision(answer, required, question) or _full_decision(
        answer, required, question, context
    )


def _plain_decision(answer: str, required: Required, question: str) -> AnswerDecision | None:
    """Return the decision on an answer that needs no full read, or None."""
    if len(required) == 1 and answer in required[0]:
        return _EQUAL
    if not (has_letters_only := is_plain(answer)):
        if len(answer) > LONGEST_ANSWER or is_unreadable(answer):
            return None
        if _is_misleading(answer) and not any(map(_is_misleading, chain.from_iterable(required))):
            return _MISREAD
    plain = read_plain_gold(required)
    folded = fold(answer.strip())
    if folded in plain.folded:
        return _EQUAL
    if plain.has(folded):
        return _EXPLAINED
    rest = plain_rest(folded, plain, question) if has_letters_only else None
    if rest is None:
        return None
    words, has_nothing_in_common = rest
    return _NOTHING if has_nothing_in_common else _undecided(words)


def _full_decision(
    answer: str, required: Required, question: str, context: Sequence[str]
) -> AnswerDecision:
    gold = read_gold(required)
    if len(answer) > LONGEST_ANSWER:
        return AnswerDecision("undecided", f"longer than {LONGEST_ANSWER:,} characters")
    if is_unreadable(answer) or shown(answer) != answer:
        return _UNSEEN
    return _Answer(answer, gold, question, context).decision()


class _Answer:
    """An answer whose words are compared with gold answers and explained."""

    def __init__(self, text: str, gold: Gold, question: str, context: Sequence[str]) -> None:
        self.text, self.gold, self.context = text, gold, context
        self.question = read_question(question)
        if gold.unspaced and not gold.polar:
            text = mark_mentions(without_formatting(text), gold.unspaced)
        elif gold.weak_names:
            text = mark_names(text, gold.weak_names)
        self.words = read_words(text)
        self.owner = [-1] * len(self.words)
        """The number of the required answer that each word mentions, or -1."""
        self.is_unclear = self.is_different = False

    def decision(self) -> AnswerDecision:
        if not self.words:
            return AnswerDecision("undecided", "no words")
        if self.gold.polar:
            return self._polar_decision()
        self._find_mentions()
        unexplained = self._unexplained()
        missing = set(range(len(self.gold.required))).difference(self.owner)
        if not missing:
            return _undecided(unexplained) if unexplained else _EXPLAINED
        if len(missing) == len(self.gold.required):
            if is_refusal(self.text):
                return _REFUSAL
            if self._is_other_value(unexplained):
                return _OTHER_VALUE
            if self.gold.stems.isdisjoint([word.key[:STEM] for word in self.words]):
                return _NOTHING
        return _undecided(unexplained) if unexplained else AnswerDecision("undecided", "incomplete")

    def _unexplained(self) -> list[str]:
        possessions = _POSSESSION.findall(self.text.lower())
        explanations = Explanations(
            self.words, self.owner, self.gold, self.question, self.context, possessions
        )
        return list(explanations.unexplained())

    # --- mentions --------------------------------------------------------------------------------

    def _find_mentions(self) -> None:
        """Find the words that mention a required answer."""
        if not self.text.isascii():
            self.words = [_without_ending(word, self.gold.ends) for word in self.words]
        at, used = 0, set[int]()
        while at < len(self.words):
            length, owner = self._mention(at, used)
            used.add(owner)
            for position in range(at, at + length):
                self.owner[position] = owner
            at += max(length, 1)

    def _mention(self, at: int, used: set[int]) -> tuple[int, int]:
        """Return the length of the mention that begins at a position, and its required answer.

        The longest alias counts, and among aliases of one length that of an answer that has no
        mention yet, because one span of text serves one required answer.
        """
        word = self.words[at]
        if word.is_sign and (marked := marked_answer(word.folded)) is not None:
            return 1, marked
        length, owner = 0, -1
        for alias in self.gold.at(self.words, at):
            if len(alias.words) < length:
                break
            if (not length or alias.answer not in used) and self._matches(at, alias):
                length, owner = len(alias.words), alias.answer
                if owner not in used:
                    break
        if not length:
            length, owner = self._mention_without_noun(at)
        if not length and word.value is not None:
            owner = self._compared(word.value)
            length = int(owner >= 0)
        return length, owner

    def _mention_without_noun(self, at: int) -> tuple[int, int]:
        """Return `_mention` of an alias without its noun: "citric" for "citric acid".

        The noun is a word of the question, and no part of a name such as "Kansas city".
        """
        if self.words[at].key in self.gold.lengths:
            for alias in self._without_nouns.get(self.words[at].key, ()):
                if self._matches(at, alias):
                    return 1, alias.answer
        return 0, -1

    @cached_property
    def _without_nouns(self) -> dict[str, list[Alias]]:
        """The aliases of a word and its noun, without the noun, by the key of the word."""
        aliases: dict[str, list[Alias]] = {}
        for alias in self.gold.aliases:
            if len(alias.words) != 2:
                continue
            first, noun = alias.words
            is_name = noun.is_capital or noun.key in EXTENDERS or noun.value is not None
            if (
                is_name
                or noun.key not in self.question.keys
                or first.folded in self.question.role.function
            ):
                continue
            aliases.setdefault(first.key, []).append(alias._replace(words=(first,)))
        return aliases

    def _matches(self, at: int, alias: Alias) -> bool:
        words = self.words[at : at + len(alias.words)]
        if len(words) < len(alias.words):
            return False
        if alias.is_weak and (len(words) < len(self.words) or not words[0].is_capital):
            return False
        strict = self.question.asks_for_name
        last = len(words) - 1 if alias.is_name else -1
        return all(
            _is_same(word, expected, is_first=not position, strict=strict or position == last)
            for position, (word, expected) in enumerate(zip(words, alias.words, strict=True))
        )

    def _compared(self, value: Value) -> int:
        """Return the required answer that a value equals or specifies, or -1."""
        results = [(index, gold, compare(gold, value)) for index, gold in self.gold.values]
        other_dates = [
            index
            for index, gold, result in results
            if result == "different" and gold.kind == value.kind == "date"
        ]
        for index, gold, result in results:
            if result == "finer" and index in other_dates:
                self.is_unclear = True
            elif result == "finer" and self._may_be_finer(gold, value):
                return index
            if result == "unclear":
                is_equal = gold.kind == value.kind == "number" and gold.number == value.number
                if is_equal and (gold.unit or value.unit) in self.question.units:
                    return index
                self.is_unclear = True
            self.is_different |= result == "different"
        return -1

    def _may_be_finer(self, gold: Value, value: Value) -> bool:
        """Return whether a date may say more than the gold answer."""
        is_year = (gold.month, gold.day) == (value.month, value.day)
        in_question = is_year and str(value.number) in self.question.keys
        return in_question or not self.question.asks_for_day

    # --- other values ----------------------------------------------------------------------------

    def _polar_decision(self) -> AnswerDecision:
        """Return the decision on an answer to a question for yes or no."""
        role = self.question.role
        expected, other = (role.yes, role.no) if self.gold.polar == "yes" else (role.no, role.yes)
        at = self._polar_position(expected | other)
        self.owner[at] = 0
        first, unexplained = self.words[at].folded, self._unexplained()
        if first in role.no and at + 1 < len(self.words):
            negations = self._negations(at + 1)
            modals = role.auxiliaries & self.question.keys
            unexplained = [word for word in unexplained if word not in role.negations | modals]
            is_clause = self.words[at + 1].separator in (",", ".")
            if negations != 1 or not is_clause:  # "No, he did", "no one knows"
                return _undecided(unexplained or [word.folded for word in self.words[at + 1 :]])
        if first not in expected | other:
            if is_refusal(self.text):
                return _REFUSAL
            unexplained.insert(0, first)
        if unexplained:
            return _undecided(unexplained)
        return _EXPLAINED if first in expected else _OTHER_VALUE

    def _negations(self, start: int) -> int:
        """Return the number of words that negate, from a position on. "ne … pas" is one."""
        after = [word.folded for word in self.words[start:]]
        return sum(
            word in self.question.role.negations for word in after if word not in ("ne", "n'")
        )

    def _polar_position(self, polar: frozenset[str]) -> int:
        """Return the position of yes or no after function words: "The answer is no"."""
        for at, word in enumerate(self.words):
            if word.folded in polar:
                return at
            if word.folded not in self.question.role.function:
                break
        return 0

    def _is_other_value(self, unexplained: list[str]) -> bool:
        """Return whether the answer is a value of the same kind that differs."""
        if len(self.gold.required) > 1 or self.is_unclear:
            return False
        values = [word.folded for word in self.words if word.value is not None]
        if self.is_different and len(values) == 1 and unexplained == values:
            return True
        if len(self.words) == 1 and self._is_other_symbol(self.words[0].key):
            return True
        others = self.question.candidates(self.gold.keys)
        function = self.question.role.function
        return bool(others) and others == {w.key for w in self.words if w.folded not in function}

    def _is_other_symbol(self, key: str) -> bool:
        """Return whether a key is a letter with another sign than a gold answer: C and C++."""
        letter = key.rstrip("+#")
        golds = [alias.words[0].key for alias in self.gold.aliases]
        same = [gold for gold in golds if gold.rstrip("+#") == letter]
        return len(letter) == 1 and bool(same) and key not in same


def _is_misleading(text: str) -> bool:
    return not text.isascii() and _MISLEADING.search(text) is not None


def _is_same(word: Word, expected: Word, *, is_first: bool, strict: bool) -> bool:
    """Return whether a word of an answer equals a word of an alias.

    strict  whether the plural of a name is another name
    """
    if word.key != expected.key:
        return False
    is_other = word.folded != expected.folded and word.value is None
    ends = {word.folded[-1], expected.folded[-1]}
    if is_other and strict and len(ends) == 2 and "s" in ends and expected.is_capital:
        return False
    if word.value is not None and "." in word.folded and "." in expected.folded:
        return word.folded == expected.folded  # version 3.6 and 3.60
    if is_other and has_accents(word.folded) and has_accents(expected.folded):
        return False
    return is_first or bool(expected.separator) or not word.separator.strip(".,")


def _undecided(words: list[str]) -> AnswerDecision:
    distinct = list(dict.fromkeys(words))[:_MOST_WORDS_OF_REASON]
    most = _LONGEST_WORD_OF_REASON
    shown_words = (word if len(word) <= most else shorten(word, most) for word in distinct)
    return AnswerDecision("undecided", ", ".join(shown_words))


def _without_ending(word: Word, ends: frozenset[str]) -> Word:
    """Return a word without a particle that is attached to a gold answer: 파리입니다."""
    if word.folded.isascii() or word.key in ends or not "\uac00" <= word.folded[0] <= "\ud7a3":
        return word
    for ending in tables().endings:
        bare = word.folded.removesuffix(ending)
        if bare != word.folded and bare in ends:
            return word._replace(key=bare, folded=bare)
    return word
