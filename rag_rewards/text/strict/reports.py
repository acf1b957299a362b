"""Whether a text reports a mention instead of asserting it: "The documents mention Paris"."""

from __future__ import annotations

from collections.abc import Sequence

from rag_rewards.text.normalize import ARTICLES
from rag_rewards.text.strict.assertion_words import (
    AUXILIARIES,
    CLAUSE_ENDS,
    CLAUSE_WORDS,
    MENTIONED,
    MENTIONING,
    PREPOSITIONS_OF_REPORTS,
    REPETITIONS,
    REPORTERS,
    REPORTING,
    SOURCES,
)
from rag_rewards.text.strict.questions import Echo
from rag_rewards.text.words import Word

_LONGEST = 12  # words between a report and a mention
_NOT_THE_END = frozenset(("as", "to"))  # "Paris is mentioned as the capital"


def is_reported(words: Sequence[Word], first: int, last: int, echo: Echo) -> bool:
    """Return whether a text only reports that someone or something names the mention."""
    return (
        _is_object(words, first, last)
        or _is_opinion(words, first, echo)
        or _is_mentioned(words, last)
    )


def _is_object(words: Sequence[Word], first: int, last: int) -> bool:
    """Return whether a mention is all that a text says about it: "I thought of Paris."."""
    for at in range(first - 1, max(first - 5, -1), -1):
        word = words[at]
        if word.after:
            return False
        if word.text in MENTIONING or f"{word.text} {words[at + 1].text}" in MENTIONING:
            return _ends(words, last)
        if word.text == "about":  # "Document 3 is about Paris"
            before = {each.text for each in words[max(at - 5, 0) : at]}
            return not before.isdisjoint(SOURCES) and _ends(words, last)
        if word.text not in ARTICLES and word.text not in PREPOSITIONS_OF_REPORTS:
            return False
    return False


def _is_opinion(words: Sequence[Word], first: int, echo: Echo) -> bool:
    """Return whether a clause reports an opinion of others: "Some say it is Paris"."""
    for at in range(first - 1, max(first - _LONGEST, 0), -1):
        if not CLAUSE_ENDS.isdisjoint(words[at].after) or "," in words[at].after:
            return False
        if words[at].text in CLAUSE_WORDS:
            return False
        if words[at].text in REPORTING and not echo[at]:
            subject = at - 1
            while subject > 0 and (
                words[subject].text in AUXILIARIES
                or words[subject].text.endswith("ly")
                or words[subject].text == "often"
            ):
                subject -= 1
            return words[subject].text in REPORTERS and not words[subject].after
    return False


def _is_mentioned(words: Sequence[Word], last: int) -> bool:
    """Return whether the predicate of a mention is that it is named: "Paris is suggested."."""
    judged = False
    for at in range(last + 1, min(last + 6, len(words))):
        if words[at - 1].after:
            return False
        word = words[at].text
        if " ".join(each.text for each in words[at : at + 3]) in MENTIONED:
            return True  # "Paris comes to mind"
        if judged and word in MENTIONED:
            following = {each.text for each in words[at + 1 : at + 5]}
            further = words[at + 1].text if at + 1 < len(words) else ""
            return _ends(words, at) or (
                (further in PREPOSITIONS_OF_REPORTS or further in REPETITIONS)
                and following.isdisjoint(_NOT_THE_END)
            )
        if word in AUXILIARIES:
            judged = True
        elif not (word.endswith("ly") or word == "often"):
            return False
    return False


def _ends(words: Sequence[Word], at: int) -> bool:
    """Return whether a clause ends after a word."""
    return bool(words[at].after) or at + 1 == len(words) or words[at + 1].text in CLAUSE_WORDS
