"""Citations as tags around the cited text: <cite id="a,b">a claim</cite>."""

from __future__ import annotations

import re

from rag_rewards.text.hidden import shown
from rag_rewards.text.statements import Statement

_TAG = re.compile(r"</cite>|<cite\s{1,8}id=([^<>]{1,1000})>|(?i:</?cite\b[^<>]{0,1000}>)")
_ATTRIBUTE = re.compile(r"\s[\w-]+\s?=")
# The tags while hidden text is removed, which removes attributes as well.
_BRACKETS = str.maketrans("⟦⟧", "[]")
_MARK = re.compile("⟦([^⟦⟧]*)⟧")
_SEPARATOR = re.compile(r"[,\s]+")


def cited_claims(text: str) -> list[Statement]:
    """Return the parts of a text inside and between <cite> tags, each with the ids that it cites.

    Parts without a word and hidden text are left out. A tag that is not closed before another tag,
    or whose first attribute is no id, has no effect. Other attributes are ignored. Ids are
    separated by commas or white space. Equal parts are one part, which cites the ids of all.

    >>> parts = cited_claims('It is old. <cite id="a1,b2">It opened in 1881.</cite>')
    >>> [(part.text, part.cited) for part in parts]
    [('It is old.', ()), ('It opened in 1881.', ('a1', 'b2'))]
    """
    marked = _TAG.sub(_mark, text.translate(_BRACKETS))
    pieces = _MARK.split(shown(marked))  # text, ids, text, ids, …, text
    cited: dict[str, dict[str, None]] = {}
    before = [pieces[0]]
    marks = pieces[1::2]
    for i, (ids, part) in enumerate(zip(marks, pieces[2::2], strict=True)):
        if ids and i + 1 < len(marks) and not marks[i + 1]:  # an opening and its closing tag
            _add(cited, "".join(before), "")
            _add(cited, part, ids)
            before = []
        else:
            before.append(part)
    _add(cited, "".join(before), "")
    return [Statement(part, tuple(filter(None, ids))) for part, ids in cited.items()]


def _mark(tag: re.Match[str]) -> str:
    """Return a mark with the ids of a tag, without ids for a closing tag; else an empty text."""
    if tag[0] == "</cite>":
        return "⟦⟧"
    if not shown(f"{tag[0]}x").strip():
        return tag[0]  # an element that hides its content
    value = (tag[1] or "").strip()
    quoted = value[:1] in ("'", '"') and value[1:].partition(value[0])[0]
    ids = quoted or _ATTRIBUTE.split(value, 1)[0]
    return f"⟦{ids}⟧" if ids.strip("\"' ") else ""


def _add(cited: dict[str, dict[str, None]], part: str, ids: str) -> None:
    part = part.strip()
    if any(map(str.isalnum, part)):
        cited.setdefault(part, {}).update(dict.fromkeys(_SEPARATOR.split(ids)))
