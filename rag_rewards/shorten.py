"""Texts of rows in messages, tables and pages: cut, and without control characters."""

from __future__ import annotations

_CONTROLS = {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)}
_SURROGATES = range(0xD800, 0xE000)  # a stream of UTF-8 does not accept them
_HIDDEN = (*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *_SURROGATES)
_VISIBLE = _CONTROLS | dict.fromkeys(_HIDDEN, "\ufffd")


def shorten(text: str, length: int) -> str:
    """Return a text on one line, cut to a number of characters.

    >>> shorten("one  two three", 9)
    'one two …'
    """
    line = " ".join(text[: 4 * length].split())  # a response can have megabytes
    return line if len(line) <= length else line[: length - 1] + "…"


def plain(text: str) -> str:
    """Return text with visible characters in place of controls and of lone surrogates.

    >>> plain("red: \\x1b[31m")
    'red: ␛[31m'
    """
    return text.translate(_VISIBLE)
