"""Citation markers: [1], [1][2], [1, 3], [doc 2], [Doc. 2], ［1］."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

_NAME = r"(?:doc(?:ument)?\.?\s{0,8})?\d{1,9}"
CITATION = rf"[\[［]\s{{0,8}}({_NAME}(?:\s{{0,8}}[,，]\s{{0,8}}{_NAME}){{0,99}})\s{{0,8}}[\]］]"
"""Default pattern of a marker. Its first group holds the cited numbers."""

_NUMBER = re.compile(r"\d+")


class Marker(msgspec.Struct, frozen=True, gc=False):
    """One marker: text[start:end], and the labels it names, as written."""

    start: int
    end: int
    labels: tuple[str, ...]


def markers(text: str, pattern: re.Pattern[str]) -> list[Marker]:
    """Every citation marker of a text, in order.

    >>> [m.labels for m in markers("So [1, 3]. Also [Doc. 2] and ［4］, [a].", compiled())]
    [('1', '3'), ('2',), ('4',)]
    """
    read: dict[str, tuple[str, ...]] = {}
    found = []
    for match in pattern.finditer(text):
        written = match[1] or ""
        labels = read.get(written)
        if labels is None:
            labels = read[written] = tuple(str(int(n)) for n in _NUMBER.findall(written))
        found.append(Marker(*match.span(), labels))
    return found


def compiled(pattern: str = CITATION) -> re.Pattern[str]:
    """A marker pattern, its letters in any case. The first group must hold the numbers."""
    return re.compile(pattern, re.IGNORECASE)


def cited_labels(text: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Labels cited anywhere in a text, each once, in order of appearance."""
    return tuple(dict.fromkeys(label for m in markers(text, pattern) for label in m.labels))


def split_valid(
    labels: Collection[str], known: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(valid, invalid) citations. [0], years and unknown ids are invalid, never another document.

    >>> split_valid(("1", "0", "1999"), ("1", "2"))
    (('1',), ('0', '1999'))
    """
    valid = tuple(label for label in labels if label in known)
    return valid, tuple(label for label in labels if label not in known)


def strip_markers(text: str, pattern: re.Pattern[str]) -> str:
    """A text without its markers and the white space before each.

    >>> strip_markers("Claim [1][2]. More[3] here.", compiled())
    'Claim. More here.'
    """
    kept, at = [], 0
    for match in pattern.finditer(text):
        kept.append(text[at : match.start()].rstrip())
        at = match.end()
    kept.append(text[at:])
    return "".join(kept).strip()
