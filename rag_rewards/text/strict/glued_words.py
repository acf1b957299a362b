"""Words without the space between them: "byJohn Reed", "singerAnna Reedand", "in2011as".

A copied text without its markup often contains such words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SHORT_WORDS = (
    "about|and|are|as|at|by|called|during|for|from|in|is|of|on|than|that|the|to|was|were|which|who"
    "|with"
)
_BEFORE = re.compile(rf"\b({_SHORT_WORDS}|The(?=[A-Z][a-z]))(?=[A-Z0-9])")
# Every match of _BEFORE is before such a place, which is found much faster.
_BETWEEN = re.compile(r"[A-Z0-9](?<=[a-z].)")
# A lower-case word of four or more letters is no part of a name such as "McReed" or "iReed".
_LONGER_BEFORE = re.compile(r"(?<![^\W_])([a-z]{4,24})(?=[A-Z][a-z])")
_CAPITAL_INSIDE = re.compile(r"[A-Z](?<=[a-z]{4}[A-Z])(?=[a-z])")
_AFTER_NUMBER = re.compile(rf"\d(?=(?:{_SHORT_WORDS})\b)")
_AFTER = re.compile(rf"(?:{_SHORT_WORDS})(?=[\sA-Z]|$)")
_DASH = re.compile(r"(?<=\w)—(?=\w)")
_QUOTATION = re.compile(r"(?<=\w)(?=“\w)|(?<=\w”)(?=\w)")
_SHORTEST = 5  # characters of a gold answer that a word can follow
_MOST = 64  # places of one gold answer


def unglued(text: str, gold: Sequence[Sequence[str]]) -> str:
    """Return a text with spaces between glued words.

    A short word is separated from a name before it only if the name is a gold answer.

    >>> unglued("It is sung by the singerAnna Reedand by others.", [["Anna Reed"]])
    'It is sung by the singer Anna Reed and by others.'
    """
    if _BETWEEN.search(text):
        text = _BEFORE.sub(r"\1 ", text)
    if "—" in text:
        text = _DASH.sub(" — ", text)
    if "“" in text:
        text = _QUOTATION.sub(" ", text)
    text = _AFTER_NUMBER.sub(r"\g<0> ", text)
    if _CAPITAL_INSIDE.search(text) and not any(
        _CAPITAL_INSIDE.search(alias) for aliases in gold for alias in aliases
    ):
        text = _LONGER_BEFORE.sub(r"\1 ", text)
    for aliases in gold:
        for alias in aliases:
            if len(alias) >= _SHORTEST and alias in text and alias[0].isupper():
                text = _without_glued_ends(text, alias)
    return text


def _without_glued_ends(text: str, alias: str) -> str:
    pieces: list[str] = []
    start, at = 0, text.find(alias)
    while at >= 0 and len(pieces) < _MOST:
        end = at + len(alias)
        if _AFTER.match(text, end):
            pieces.append(text[start:end])
            start = end
        at = text.find(alias, end)
    return " ".join([*pieces, text[start:]]) if pieces else text
