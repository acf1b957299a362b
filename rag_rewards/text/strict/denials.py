"""Whether the words around a mention deny it: "not Paris", "Paris is wrong"."""

from __future__ import annotations

from collections.abc import Sequence

from rag_rewards.text.normalize import ARTICLES
from rag_rewards.text.strict.assertion_words import (
    ASSERTING,
    AUXILIARIES,
    CLAUSE_ENDS,
    CLAUSE_WORDS,
    COMPARATIVES,
    COORDINATORS,
    COPULAS,
    DENIALS,
    DENIED_DENIALS,
    FAILURES,
    FUNCTION_WORDS,
    JUDGED,
    NEGATIONS,
    NOBODY,
    OPENS,
    PRONOUNS,
    QUOTE,
    SKIPPED,
    TENTATIVE,
    TWO_WORD_NEGATIONS,
    UNIVERSAL,
)
from rag_rewards.text.strict.capitals import Capitals
from rag_rewards.text.strict.questions import Echo
from rag_rewards.text.words import Word

# Words that decide without a mark beside them.
_DECIDING = (
    CLAUSE_WORDS
    | {first for first, _ in TWO_WORD_NEGATIONS}
    | {"right", "correct", "true", "but", "not"}
)


# Begin a further clause: "critics not convinced it is Paris".
_CLAUSE_SUBJECTS = PRONOUNS | {"it", "that", "this"}


class Denials:
    """Tests whether the words around a mention deny it.

    echo      whether each word repeats the question; such a word denies nothing
    capitals  the words with capitals, of which titles consist
    """

    def __init__(self, words: Sequence[Word], echo: Echo, capitals: Capitals) -> None:
        self._words = words
        self._echo = echo
        self._capitals = capitals

    def deny(self, first: int, last: int) -> bool:
        """Return whether the text denies the words from `first` to `last`."""
        return self._before(first) or self._after(last)

    def _before(self, first: int) -> bool:
        """Return whether a negation is between the beginning of the clause and the mention."""
        words = self._words
        if words[first].before.endswith("!") or words[first].text[:1] in "不非":
            return True
        linked = False  # whether a verb is between the words that are read and the mention
        at = first - 1
        while at > max(first - 40, -1):
            word = words[at]
            if word.after or words[at + 1].before or word.text in _DECIDING:
                decided = self._decides(at, first)
                if decided is not None:
                    return decided
            start = _quotation_start(words, at) if linked and word.after else at
            if start < at:
                at = start - 1  # a title: "No Exit" was written by
                continue
            is_aside = linked and (self._is_title(at) or self._modifies(at, first))
            if _is_negation(word) and not self._echo[at] and not is_aside:
                return not self._asserts(at, first)
            linked = linked or word.text in COPULAS
            at -= 1
        return self._is_bound(first)

    def _decides(self, at: int, first: int) -> bool | None:
        """Return whether a word decides that the mention is denied; None if it decides nothing.

        A word without a mark beside it decides nothing, unless it is one of `_DECIDING`.
        """
        words = self._words
        word, following = words[at], words[at + 1]
        before = words[at - 1].text if at else ""
        if (word.text, following.text) in TWO_WORD_NEGATIONS:
            return not (before in NOBODY or (before == "one" and words[at - 2].text == "no"))
        if word.text in ("right", "correct", "true") and following.text != "to":
            return before in NEGATIONS
        if word.text == "but" and not UNIVERSAL.isdisjoint(
            each.text for each in words[max(at - 2, 0) : at]
        ):
            return True  # "anything but Paris", "all cities but Paris"
        if at == first - 1 and word.text == "not" and set(word.after) <= OPENS:
            return True  # "not: Paris", "not (Paris)"
        opens = word.text in CLAUSE_WORDS and before != "that"
        if opens or _ends_clause(word, following):
            return self._is_bound(first)
        if word.after.startswith(",") and not _list_continues(words, at, first):
            return any(w.text == "not" and w.after == "," for w in words[max(at - 8, 0) : at])
        return None

    def _asserts(self, at: int, first: int) -> bool:
        """Return whether a clause asserts the mention despite a negation."""
        words = self._words
        close = {word.text for word in words[at + 1 : at + 3]}
        doubled = words[at].text in ("doubt", "doubts") and at and _is_negation(words[at - 1])
        bound = words[self._bound(first)].text in ("until", "before")
        asserting = words[at + 1].text in ASSERTING or not close.isdisjoint(DENIED_DENIALS)
        return bool(doubled) or bound or asserting

    def _bound(self, first: int) -> int:
        """Return the position of the word before a mention and its article."""
        return max(first - 2 if first and self._words[first - 1].text in ARTICLES else first - 1, 0)

    def _is_bound(self, first: int) -> bool:
        """Return whether a comparison precedes a mention: "more than 7", "before 1900"."""
        at = self._bound(first)
        word = self._words[at].text
        if at >= first or self._words[at].after:
            return False
        is_number = self._words[first].text[:1].isdecimal()
        compares = word == "than" or (is_number and word in COMPARATIVES)
        return compares and not self._echo[at]

    def _is_title(self, at: int) -> bool:
        """Return whether a negation begins a title: "Nobody Knows was directed by"."""
        words = self._words
        return words[at].text in self._capitals and words[at + 1].text in self._capitals

    def _modifies(self, at: int, first: int) -> bool:
        """Return whether a negation and a participle describe the noun before them.

        Example: "The powers not given to one are reserved for Paris".
        """
        words = self._words
        if not at or words[at - 1].after or not words[at + 1].text.endswith(("ed", "en")):
            return False
        noun = words[at - 1].text
        is_subject = any(word.text in _CLAUSE_SUBJECTS for word in words[at + 1 : first])
        return noun not in FUNCTION_WORDS and "'" not in noun and not is_subject

    def _after(self, last: int) -> bool:
        """Return whether the words after the mention deny it.

        Examples: "Paris is wrong", "Paris is not the capital", "Paris (wrong)", "Paris: no".
        """
        words = self._words
        judged = relative = False
        for i in range(last + 1, min(last + 7, len(words))):
            here, word = words[i - 1], words[i]
            if here.after and not (i == last + 1 and set(here.after) <= set(",:(\"'*")):
                return False
            if _is_negation(word) and self._echo[i]:
                return False
            if word.text in ("cannot", "can't"):
                return True
            if word.text in DENIALS or word.text.endswith("n't"):
                rest = [w.text for w in words[i + 1 : i + 4]]
                if relative and word.text in ("not", "never"):
                    return not JUDGED.isdisjoint(rest)
                alone = (here.after or word.before) and (word.after or not rest)
                alone = alone or (word.text == "never" and i == last + 1 and not here.after)
                return bool(judged or alone or word.text.endswith("n't")) and (
                    ASSERTING.isdisjoint(rest[:1])
                )
            if word.text in FAILURES and not self._echo[i]:
                return True
            if judged and word.text in TENTATIVE:
                return True
            if (
                judged
                and i + 1 < len(words)
                and (word.text, words[i + 1].text) in TWO_WORD_NEGATIONS
            ):
                return True
            relative = relative or word.text in ("which", "that")
            if word.text in AUXILIARIES:
                judged = True
            elif judged:
                if word.text not in ARTICLES and word.text not in SKIPPED:
                    return False
            elif not word.text.endswith("ly") and word.text not in SKIPPED:
                return False
        return False


def _is_negation(word: Word) -> bool:
    return word.text in NEGATIONS or word.text.endswith("n't")


def _quotation_start(words: Sequence[Word], at: int) -> int:
    """Return the first word of a quotation of several words that ends at a word, else that word."""
    mark = next((char for char in words[at].after if char in QUOTE or char == "'"), "")
    if not mark or mark in words[at].before:
        return at
    for start in range(at - 1, max(at - 16, -1), -1):
        if mark in words[start].before:
            return start
        if mark in words[start].after:
            break
    return at


def _ends_clause(word: Word, following: Word) -> bool:
    return not CLAUSE_ENDS.isdisjoint(word.after) or not CLAUSE_ENDS.isdisjoint(following.before)


def _list_continues(words: Sequence[Word], comma: int, first: int) -> bool:
    """Return whether a list continues after a comma, as in "not Rome, Paris or Bonn".

    The negation applies to the whole list.
    """
    following = words[comma + 1 : first + 1]
    return len(following) <= 4 and any(w.text in COORDINATORS for w in words[comma + 1 : first + 4])
