"""Acronyms of the words before them: "World Health Organization (WHO)"."""

from __future__ import annotations

from collections.abc import Sequence

from rag_rewards.text.strict.assertion_words import FUNCTION_WORDS
from rag_rewards.text.words import Word

_LONGEST = 12  # letters


def is_acronym(words: Sequence[Word], at: int) -> bool:
    """Return whether a word in parentheses consists of the initials of the words before it.

    Function words are left out: "Organization for Food and Health (OFH)".
    """
    word = words[at]
    if not word.before.startswith("(") or not 1 < len(word.text) <= _LONGEST:
        return False
    initials: list[str] = []
    for before in reversed(words[max(at - 2 * len(word.text), 0) : at]):
        if len(initials) == len(word.text):
            break
        if before.text not in FUNCTION_WORDS:
            initials.append(before.text[:1])
    return word.text == "".join(reversed(initials))
