"""Scripts without spaces: Chinese, Japanese, Thai and others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from rag_rewards.matching.tables import tables
from rag_rewards.text.normalize import fold

_LETTERS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(f"[{_LETTERS}]")
_BOUNDARY = re.compile(rf"(?<=[{_LETTERS}])(?=[a-zA-Z\d])|(?<=[a-zA-Z])(?=[{_LETTERS}])", re.ASCII)
_FIRST_MARK, _MARKS = 0xE000, 0x1000
_PRIVATE = re.compile("[\ue000-\uefff]")
_SHORTEST_SHARED = 2  # characters
_LONGEST = 300  # characters of a text between two mentions


def is_unspaced(text: str) -> bool:
    """Return whether a text contains letters of a script without spaces."""
    return not text.isascii() and _UNSPACED.search(text) is not None


def with_spaces(text: str) -> str:
    """Return a text with spaces between Latin letters and letters of scripts without spaces."""
    return _BOUNDARY.sub(" ", text)


def mark_mentions(text: str, aliases: Sequence[tuple[str, int]]) -> str:
    """Return a text with a private character in place of each alias, which marks its answer.

    Private characters of the text itself are removed.
    """
    folded = _PRIVATE.sub(" ", fold(text))
    for alias, answer in aliases:
        if alias in folded:
            folded = folded.replace(alias, f" {chr(_FIRST_MARK + answer % _MARKS)} ")
    return folded


def mark_names(text: str, names: Sequence[tuple[str, int]]) -> str:
    """Return a text with the private character of its answer in place of each name."""
    for name, answer in names:
        text = re.sub(rf"\b{re.escape(name)}\b", f" {chr(_FIRST_MARK + answer % _MARKS)} ", text)
    return text


def marked_answer(sign: str) -> int | None:
    """Return the required answer that a private character marks, or None."""
    number = ord(sign[0]) - _FIRST_MARK
    return number if 0 <= number < _MARKS else None


def explains(text: str, question: str, *, touches: tuple[bool, bool] = (False, False)) -> bool:
    """Return whether a text consists of function words and of parts of the question.

    A part of the question that touches a mention may extend its name, and explains nothing, unless
    the mention is in the place of the word that asks.

    >>> explains("の首都は", "フランスの首都はどこですか")
    True
    """
    turning = tables().turning_strings + tables().asking_strings
    if len(text) > _LONGEST or any(word in text for word in turning):
        return False
    asking = tables().asking_strings
    if touches[0] and any(f"{word}{text}" in question for word in asking):
        return True
    if touches[1] and any(f"{text}{word}" in question for word in asking):
        return True
    is_reached = [True] + [False] * len(text)
    for at in range(len(text)):
        if not is_reached[at]:
            continue
        for string in _strings_by_first().get(text[at], ()):
            if text.startswith(string, at):
                is_reached[at + len(string)] = True
        if at or not touches[0]:
            end = at + _shared(text, at, question)
            for position in range(at + _SHORTEST_SHARED, end + 1):
                is_reached[position] |= position < len(text) or not touches[1]
    return is_reached[-1]


@cache
def _strings_by_first() -> dict[str, list[str]]:
    strings: dict[str, list[str]] = {}
    for string in tables().strings:
        strings.setdefault(string[0], []).append(string)
    return strings


def _shared(text: str, at: int, question: str) -> int:
    """Return the length of the longest part of the question that begins at a position."""
    length = _SHORTEST_SHARED
    if text[at : at + length] not in question or at + length > len(text):
        return 0
    while at + length < len(text) and text[at : at + length + 1] in question:
        length += 1
    return length
