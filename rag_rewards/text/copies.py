"""Copies of documents: a response that repeats a whole document states nothing itself."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rag_rewards.text.citations import compiled, strip_markers

_CLAUSE = re.compile(r"[.!?;,](?:\s|$)|[。！？；，、,;]|\n")
_SKIPPED = re.compile(r"[\W_]+")
_MIN_SHARE = 0.9
_MANY = 3  # documents of one clause


def copies_document(text: str, documents: Iterable[str]) -> bool:
    """Return whether a text is a copy of a document with several clauses, or of three documents.

    A tenth of its letters and digits may be other text, and a copy of one document may lack a tenth
    of the letters and digits of the document.

    >>> document = "Paris lies on the Seine. Rome lies on the Tiber."
    >>> copies_document("Paris lies on the Seine. Rome lies on the Tiber [1].", [document])
    True
    >>> copies_document("Paris lies on the Seine.", [document])
    False
    """
    bare = strip_markers(text, _MARKERS)
    if not _has_clauses(bare):
        return False
    letters = rest = _letters(bare)
    copies = 0
    for document in documents:
        original = _letters(document) if len(document) <= 2 * len(bare) else ""
        if not original:
            continue
        if letters in original and len(letters) >= _MIN_SHARE * len(original):
            return True
        if original in rest:
            rest = rest.replace(original, "", 1)
            copies += _MANY if _has_clauses(document) else 1
    return copies >= _MANY and len(rest) <= (1 - _MIN_SHARE) * len(letters)


def _has_clauses(text: str) -> bool:
    """Return whether a text has more than one clause."""
    return _CLAUSE.search(text.rstrip(" .!?。！？")) is not None


def _letters(text: str) -> str:
    return _SKIPPED.sub("", text).casefold()


_MARKERS = compiled()
