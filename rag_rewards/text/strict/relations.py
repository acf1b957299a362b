"""Whether a mention only says to whom another person or place is related: "The wife of Orwell"."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from rag_rewards.text.normalize import ARTICLES
from rag_rewards.text.strict.assertion_words import COPULAS, DEFEATING, RELATIVES
from rag_rewards.text.strict.candidates import stem
from rag_rewards.text.words import Word

_LONGEST_CLAUSE = 10  # words
_LONGEST = 5  # words between the beginning of an answer and "of"
_STEMS = frozenset(map(stem, RELATIVES))
_SUBJECTS = frozenset(("it", "this", "that", "he", "she", "they", "answer"))


def is_relation(words: Sequence[Word], first: int, last: int, question: AbstractSet[str]) -> bool:
    """Return whether the whole answer is a relation to the mention: "A neighbour of Greece.".

    `question` contains the stems of the question. If it asks for a relation, or if the answer also
    contains a name ("He was Tom Hill, a son of Ann Hill"), the mention can be the answer.
    """
    if _owns_relation(words, first, last):
        return _STEMS.isdisjoint(question)
    if first < 2 or words[first - 1].text != "of" or words[first - 2].text not in RELATIVES:
        return False
    if last + 1 < len(words) and not words[last].after:
        return False
    if not _STEMS.isdisjoint(question):
        return False
    at = first - 3
    while at >= 0 and first - at <= _LONGEST and not words[at].after:
        if words[at].text in ARTICLES:
            return _begins(words, at)
        at -= 1
    return at < 0


def _owns_relation(words: Sequence[Word], first: int, last: int) -> bool:
    """Return whether an answer begins with a relation of the mention: "Orwell's wife"."""
    if last + 1 >= len(words) or words[last].after or not words[last].text.endswith(("'s", "s'")):
        return False
    relation = next(
        (
            at
            for at in range(last + 1, min(last + _LONGEST, len(words)))
            if words[at].text in RELATIVES or words[at].after
        ),
        last,
    )
    if words[relation].text not in RELATIVES:
        return False
    at = first - 1 if first and words[first - 1].text in ARTICLES else first
    return _begins(words, at)


def is_loser(words: Sequence[Word], first: int) -> bool:
    """Return whether a mention is the object of a verb of winning: "France beat Spain".

    In "They lost the title in 2016", the mention is in a clause about losing; in "lost to Spain",
    it is the winner.
    """
    at = first - 1
    if at > 0 and words[at].text in ARTICLES:
        at -= 1
    if at < 0 or words[at].after:
        return False
    if words[at].text in DEFEATING:
        return True
    for before in range(at, max(first - _LONGEST_CLAUSE, -1), -1):
        if words[before].after:
            return False
        if words[before].text in ("lost", "lose", "loses"):
            return words[before + 1].text != "to"
    return False


def _begins(words: Sequence[Word], at: int) -> bool:
    """Return whether an answer begins at an article, also after "It was"."""
    if not at or set(words[at - 1].after) & set(".!?;\n"):
        return True
    return at > 1 and words[at - 1].text in COPULAS and words[at - 2].text in _SUBJECTS
