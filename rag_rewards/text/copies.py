"""Copies of documents: a response that repeats a whole document states nothing itself."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rag_rewards.text.citations import compiled, strip_markers

_CLAUSE = re.compile(r"[.!?;,](?:\s|$)|[。！？；，、,;]|\n")
_SKIPPED = re.compile(r"[\W_]+")
_MIN_SHARE = 0.9  # of the characters of the document


def copies_document(text: str, documents: Iterable[str]) -> bool:
    """Return whether a text is a copy of a document that contains more than one clause.

    The document may lack at most a tenth of its letters and digits at its beginning or end.

    >>> document = "Paris lies on the Seine. Rome lies on the Tiber."
    >>> copies_document("Paris lies on the Seine. Rome lies on the Tiber [1].", [document])
    True
    >>> copies_document("Paris lies on the Seine.", [document])
    False
    """
    bare = strip_markers(text, _MARKERS)
    if not _CLAUSE.search(bare.rstrip(" .!?。！？")):
        return False
    letters = _letters(bare)
    return any(
        len(document) <= 2 * len(bare) and _covers(letters, document) for document in documents
    )


def _covers(letters: str, document: str) -> bool:
    original = _letters(document)
    return letters in original and len(letters) >= _MIN_SHARE * len(original)


def _letters(text: str) -> str:
    return _SKIPPED.sub("", text).casefold()


_MARKERS = compiled()
