"""The removal of a document from the reply of a search. The other documents keep their numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from rag_rewards.documents import Document

_HEAD = re.compile(r"(?:Doc \d+(?:\(Title: [^\n]*\))?|\(\d+\)|\[\d+\])[ \t]*\Z")
"""The number and the title before the text of a document, as dialects write them."""
Range = tuple[int, int]


def without_document(reply: str, document: Document) -> str:
    """Return a reply without each occurrence of a document, with its number and its title.

    >>> reply = '<information>Doc 1(Title: "A") x y\\nDoc 2(Title: "B") z\\n</information>'
    >>> without_document(reply, Document(text="x y"))
    '<information>Doc 2(Title: "B") z\\n</information>'
    >>> without_document('[{"text": "x"}, {"text": "z"}]', Document(text="x"))
    '[{"text": "z"}]'
    """
    if not document.text.strip():
        return reply
    escaped = msgspec.json.encode(document.text).decode()
    if escaped in reply:
        return _cut(reply, re.escape(escaped), _object)
    # The text of a document is not a part of a longer word or line.
    plain = rf"(?:(?<=[\s>)\]])|\A){re.escape(document.text.strip())}(?=[ \t]*(?:\n|<|\Z))"
    return _cut(reply, plain, _lines)


def _cut(reply: str, pattern: str, entry: Callable[[str, int, int, int], Range]) -> str:
    """Return a reply without the entries around each match of a pattern."""
    parts: list[str] = []
    at = 0
    for match in re.finditer(pattern, reply):
        if match.start() < at:
            continue
        start, end = entry(reply, match.start(), match.end(), at)
        parts.append(reply[at:start])
        at = end
    return "".join(parts) + reply[at:]


def _lines(reply: str, start: int, end: int, least: int) -> Range:
    """Return the range of the lines of a document, with its number and title."""
    line = max(reply.rfind("\n", least, start) + 1, least)
    head = _HEAD.search(reply, line, start)
    return head.start() if head else start, end + reply.startswith("\n", end)


def _object(reply: str, start: int, end: int, least: int) -> Range:
    """Return the range of the JSON object of a document, with one comma beside it."""
    opening, closing = reply.rfind("{", least, start), reply.find("}", end)
    if opening < 0 or closing < 0 or not _is_object(reply[opening : closing + 1]):
        return start, start
    if after := re.compile(r"\s*,\s*").match(reply, closing + 1):
        return opening, after.end()
    before = reply[least:opening].rstrip()
    return (least + len(before) - 1 if before.endswith(",") else opening), closing + 1


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False
