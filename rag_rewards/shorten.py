"""Cut texts for one line of a message, a table or a page."""

from __future__ import annotations


def shorten(text: str, length: int) -> str:
    """Return a text on one line, cut to a number of characters.

    >>> shorten("one  two three", 9)
    'one two …'
    """
    line = " ".join(text[: 4 * length].split())  # a response can have megabytes
    return line if len(line) <= length else line[: length - 1] + "…"
