"""Refusals among answers."""

from __future__ import annotations

import re
from functools import cache

from rag_rewards.text.normalize import fold
from rag_rewards.text.refusal import ABSTENTIONS, REFUSAL, refusal_form
from rag_rewards.text.refusal_words import foreign

_LONGEST = 400  # characters
_PHRASES = (
    "dont know", "do not know", "not know", "no idea", "cannot answer", "cant answer",
    "couldnt find", "could not find", "cannot determine", "cannot be determined",
    "cannot be answered", "not mentioned", "not provided", "not specified", "no answer",
    "no information", "not enough information", "insufficient information", "unable to answer",
    "unable to determine", "not sure", "n a",
)  # fmt: skip


@cache
def refusals() -> tuple[frozenset[str], re.Pattern[str]]:
    """Return the first words of all phrases, and a pattern that finds a phrase."""
    others = [refusal_form(p) for each in foreign().values() for p in each.phrases]
    phrases = dict.fromkeys([*_PHRASES, *map(refusal_form, (*ABSTENTIONS, REFUSAL)), *others])
    pattern = "|".join(rf" {re.escape(p)} " if p.isascii() else re.escape(p) for p in phrases)
    return frozenset(p.split()[0] for p in phrases if p.isascii()), re.compile(pattern)


def is_refusal(answer: str) -> bool:
    """Return whether an answer says that the model does not know or give the answer.

    >>> is_refusal("I don't know."), is_refusal("Paris")
    (True, False)
    """
    if len(answer) > _LONGEST:
        return False
    words, pattern = refusals()
    normal = refusal_form(fold(answer))
    if normal.isascii() and words.isdisjoint(normal.split()):
        return False
    return pattern.search(f" {normal} ") is not None
