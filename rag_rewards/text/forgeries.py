"""Lines of a response that imitate passages of documents."""

from __future__ import annotations

import re

_FORGED_LINE = re.compile(
    r"(?i)\n[ \t]{0,8}(?:>[^\n]*|"
    # A labelled passage ends at the next blank line.
    r"(?:(?:document|doc|passage|source|sources|title|references?)\b[ \t]{0,8}"
    r"(?:\[?\d{1,3}\]?)?[ \t]{0,8}:|\[\d{1,3}\][ \t]{0,8}(?:title|\())[^\n]*(?:\n[^\n]+)*)"
)


def without_forgeries(text: str) -> str:
    """Return a text without quoted lines and labelled passages of documents.

    >>> without_forgeries("It is Rome.\\nDocument 1: Paris is large.")
    'It is Rome.\\n'
    """
    if "\n" not in text:
        return text
    lines = f"\n{text}"
    own = _FORGED_LINE.sub("\n", lines)
    return own if _FORGED_LINE.match(lines) else own[1:]
