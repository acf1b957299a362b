"""Citation markers: [1], [1, 3], [1-3], [doc 2], [citation:2], [^2], ［1］, 【1】, (Document 2)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

import msgspec

_WORD = r"(?:doc(?:ument)?|passage|source|ref(?:erence)?|citation)s?"
_NAME = (
    rf"(?:(?:see\s{{1,8}})?{_WORD}(?:\.|\s{{0,8}}:)?\s{{0,8}}(?:{_WORD}\s{{1,8}})?|[#^d])?"
    r"\d{1,9}(?: ?[-–] ?\d{1,9})?(?:†[^\s\[\]【】,，;；、&†#^]{0,40})?"
)
CITATION = (
    rf"(?:[\[［【]|[(（](?=(?:see\s{{1,8}})?{_WORD}\b))"
    rf"\s{{0,8}}({_NAME}(?:\s{{0,8}}(?:[,，;；、&]|and\b)\s{{0,8}}{_NAME}){{0,99}})\s{{0,8}}"
    r"[\]］】)）]"
)
"""Default pattern of a marker. The first group contains the cited numbers.

A number in parentheses is a marker only after a word such as "document". The text after † contains
no separator: otherwise an unclosed marker could be read in exponentially many ways.
"""
PATTERN = (
    "regular expression of a citation marker; group 1 contains the numbers",
    "ours: the notations that language models write",
)
"""The setting of this pattern."""

_OPENING = re.compile("[\\[［【(（]")

_RANGE = re.compile(r"(\d+)(?: ?[-–] ?(\d+))?(?:†[^,，;；、]*)?")
_LONGEST_RANGE = 50


class Marker(msgspec.Struct, frozen=True, gc=False):
    """A marker at text[start:end], and the labels in it, without leading zeros."""

    start: int
    end: int
    labels: tuple[str, ...]


def markers(text: str, pattern: re.Pattern[str], documents: int | None = None) -> list[Marker]:
    """Return the citation markers of a text, in order.

    `documents` is the number of documents, which limits the numbers of a range.

    >>> [m.labels for m in markers("So [1, 3]. Also [Doc. 2] and ［4］, [a].", compiled())]
    [('1', '3'), ('2',), ('4',)]
    """
    return [
        Marker(match.start(), match.end(), labels_in(match[1] or "", documents))
        for match in _matches(text, pattern)
    ]


def _matches(text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern. Those of the default one are sought at brackets only."""
    if pattern.pattern != CITATION:
        yield from pattern.finditer(text)
        return
    end = 0
    for opening in _OPENING.finditer(text):
        if opening.start() >= end and (match := pattern.match(text, opening.start())):
            end = match.end()
            yield match


def labels_in(content: str, documents: int | None = None) -> tuple[str, ...]:
    """Return the numbers in the content of a marker, with those of short ranges.

    Of a range of more than `documents` numbers, that many and the last one are returned.

    >>> labels_in("1-3, doc 7"), labels_in("2†source")
    (('1', '2', '3', '7'), ('2',))
    """
    read = _read_short if len(content) <= _LONGEST_SHORT else _read_labels
    return read(content, documents)


def _read_labels(content: str, documents: int | None) -> tuple[str, ...]:
    labels: list[str] = []
    for match in _RANGE.finditer(content):
        first, last = int(match[1]), int(match[2] or match[1])
        if first <= last <= first + _LONGEST_RANGE:
            labels += map(str, range(first, min(last, first + (documents or last))))
            labels.append(str(last))
        else:
            labels += (str(first), str(last))
    return tuple(labels)


_LONGEST_SHORT = 40  # characters, so that the labels in memory are few
_read_short = lru_cache(maxsize=1024)(_read_labels)


def compiled(pattern: str = CITATION) -> re.Pattern[str]:
    """Compile a pattern of markers, which ignores case. Its first group contains the numbers."""
    return re.compile(pattern, re.IGNORECASE)


def cited_labels(
    text: str, pattern: re.Pattern[str], documents: int | None = None
) -> tuple[str, ...]:
    """Return the labels that a text cites, each once, in order of appearance."""
    contents = dict.fromkeys(match[1] or "" for match in _matches(text, pattern))
    labels = (label for content in contents for label in labels_in(content, documents))
    return tuple(dict.fromkeys(labels))


def split_valid(
    labels: Collection[str], document_labels: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divide citations into valid and invalid ones.

    A citation is valid if it is one of `document_labels`. Any other one, such as 0 or a year,
    never counts as a citation of another document.

    >>> split_valid(("1", "0", "1999"), ("1", "2"))
    (('1',), ('0', '1999'))
    """
    valid = tuple([label for label in labels if label in document_labels])
    if len(valid) == len(labels):
        return valid, ()
    return valid, tuple([label for label in labels if label not in document_labels])


def strip_markers(text: str, pattern: re.Pattern[str]) -> str:
    """Return a text without its markers and without the white space before each marker.

    >>> strip_markers("Claim [1][2]. More[3] here.", compiled())
    'Claim. More here.'
    """
    pieces, at = [], 0
    for match in _matches(text, pattern):
        pieces.append(text[at : match.start()].rstrip())
        at = match.end()
    pieces.append(text[at:])
    return "".join(pieces).strip()
