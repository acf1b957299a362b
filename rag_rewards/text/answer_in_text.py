"""Whether a text contains a gold answer as whole words."""

from __future__ import annotations

from collections.abc import Iterable

from rag_rewards.text.normalize import squad

_TOO_SHORT = frozenset(("", "yes", "no", "noanswer"))
"""Normalized answers that occur in texts without answering anything."""


def normal_forms(aliases: Iterable[str]) -> list[str]:
    """Return the normalized forms of aliases that answer something where a text contains them.

    >>> normal_forms(["The Seine!", "yes"])
    ['seine']
    """
    return [form for form in map(squad, aliases) if form not in _TOO_SHORT]


def contains_answer(normal_text: str, forms: Iterable[str]) -> bool:
    """Return whether a normalized text contains one of the normalized answers as whole words.

    >>> contains_answer("paris lies on seine", ["on seine"]), contains_answer("parisian", ["paris"])
    (True, False)
    """
    padded = f" {normal_text} "
    return any(f" {form} " in padded for form in forms)
