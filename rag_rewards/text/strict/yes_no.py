"""Answers to a yes-no question that contain both answers: "Yes. No.", "yes (no)"."""

from __future__ import annotations

import re
from collections.abc import Sequence

_YES = re.compile(r"(?<![\w-])yes(?![\w-])", re.IGNORECASE)
_NO = re.compile(
    r"(?<![\w-])no(?![\w-])(?=\s*(?:[.,;:!?()/\n]|$)|\s+(?:and|but|or|also|yes)\b)(?!\.\s?\d)",
    re.IGNORECASE,
)


def says_both(text: str, aliases: Sequence[str]) -> bool:
    """Return whether the gold answer is yes or no and a text contains the other one too.

    The word "no" before a noun is not an answer.

    >>> says_both("Yes. No.", ["yes"]), says_both("Yes, there is no doubt.", ["yes"])
    (True, False)
    """
    if not aliases or aliases[0].strip(" .").casefold() not in ("yes", "no"):
        return False
    answers = {alias.strip(" .").casefold() for alias in aliases}
    if answers == {"yes"}:
        return _NO.search(text) is not None
    return answers == {"no"} and _YES.search(text) is not None
