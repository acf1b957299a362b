"""The results of a search as text: its documents, and the text that an environment writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from rag_rewards.turns.dialects import Dialect
from rag_rewards.turns.turn import Result

_DOC = re.compile(r"Doc \d{1,9}\(")
_NUMBERED = re.compile(r"\((\d{1,9})\)")
_TITLE = "Title:"
_RESULTS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def documents_of(block: str, dialect: Dialect) -> tuple[Result, ...]:
    """Return the documents of a results block, without its tags, in a dialect.

    >>> from rag_rewards.turns.dialects import SEARCH_R1
    >>> documents_of("Doc 1(Title: Paris (city)) The capital.", SEARCH_R1)[0].title
    'Paris (city)'
    """
    if not block.strip():
        return ()
    if dialect.name == "search-r1":
        return tuple(map(_titled, _pieces(block)))
    if dialect.name == "r1-searcher":
        return () if block.strip() == "None" else tuple(_numbered(block))
    if dialect.name == "research":
        return tuple(Result(text=text) for text in _paragraphs(block))
    return _of_tool(block)


def results_in(observation: str, dialect: Dialect) -> tuple[Result, ...] | None:
    """Return the documents of the first results block of an observation, None without a block."""
    if dialect.block is None:
        return documents_of(observation, dialect)
    opening, closing = dialect.block
    start = observation.find(opening)
    if start < 0:
        return None
    start += len(opening)
    end = observation.find(closing, start)
    return documents_of(observation[start : end if end >= 0 else None], dialect)


def block_of(documents: Sequence[Mapping[str, Any]], dialect: Dialect) -> str:
    """Return the results block of a dialect, as the environment of its authors writes it.

    >>> from rag_rewards.turns.dialects import SEARCH_R1
    >>> block_of([{"title": "Paris", "text": "The capital."}], SEARCH_R1).strip()
    '<information>Doc 1(Title: Paris) The capital.</information>'
    """
    if not documents or dialect.block is None:
        return dialect.empty_block
    opening, closing = dialect.block
    if dialect.name == "search-r1":
        texts = [
            f"Doc {i}(Title: {document.get('title') or ''}) {document['text']}"
            for i, document in enumerate(documents, 1)
        ]
        return f"\n\n{opening}" + "\n".join(texts) + f"{closing}\n\n"
    if dialect.name == "r1-searcher":
        texts = [f"({i}){document['text']}" for i, document in enumerate(documents, 1)]
        return f"\n\n{opening}" + "\n".join(texts) + f"{closing}\n\n"
    return f" {opening}\n" + "\n\n".join(str(d["text"]) for d in documents) + f"\n{closing}"


def _pieces(block: str) -> Iterator[str]:
    """Yield the lines of each document in one text. A document begins with `Doc k(`."""
    lines: list[str] = []
    for line in block.split("\n"):
        if _DOC.match(line):
            if any(map(str.strip, lines)):
                yield "\n".join(lines)
            lines = []
        lines.append(line)
    if any(map(str.strip, lines)):
        yield "\n".join(lines)


def _titled(text: str) -> Result:
    """Return a document from `Doc k(Title: t) text`. What cannot be cut stays in the text."""
    start = _DOC.match(text)
    if start is None:
        return Result(text=text.strip())
    body = text[start.end() :].lstrip()
    if not body.startswith(_TITLE):
        return Result(text=text.strip())
    body = body[len(_TITLE) :].lstrip()
    end = _closing(body)
    if end < 0:
        return Result(text=text.strip())
    return Result(title=_unquoted(body[:end].strip()) or None, text=body[end + 1 :].strip())


_PARENTHESIS = re.compile(r"[()]")


def _closing(text: str) -> int:
    """Return the position of the parenthesis that closes a title, or −1.

    A title in quotation marks ends at `")`. Parentheses in another title are pairs.
    """
    if text.startswith('"'):
        end = text.find('")')
        return end + 1 if end >= 0 else -1
    depth = 1
    for match in _PARENTHESIS.finditer(text):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return match.start()
    return -1


def _unquoted(title: str) -> str:
    if len(title) > 1 and title[0] == title[-1] == '"':
        return title[1:-1].strip()
    return title


def _numbered(block: str) -> Iterator[Result]:
    """Yield the documents of lines `(k)text`, numbered from 1. Other lines continue a document."""
    lines: list[str] = []
    number = 0
    for line in block.split("\n"):
        start = _NUMBERED.match(line)
        if start and int(start[1]) == number + 1:
            if text := "\n".join(lines).strip():
                yield Result(text=text)
            lines, number, line = [], number + 1, line[start.end() :]
        lines.append(line)
    if text := "\n".join(lines).strip():
        yield Result(text=text)


def _paragraphs(block: str) -> Iterator[str]:
    """Yield the texts between blank lines."""
    for has_words, lines in groupby(block.split("\n"), lambda line: bool(line.strip())):
        if has_words:
            yield "\n".join(lines).strip()


def _of_tool(content: str) -> tuple[Result, ...]:
    """Return the documents of a tool message: a JSON list of objects, or the whole text."""
    whole = (Result(text=content.strip()),)
    if content.lstrip()[:1] != "[":
        return whole
    try:
        items = _RESULTS.decode(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return whole
    documents = []
    for item in items:
        text = _field(item, "text", str)
        if text is None:
            return whole
        documents.append(
            Result(
                text=text,
                id=_field(item, "id", str | int),
                title=_field(item, "title", str),
                url=_field(item, "url", str),
            )
        )
    return tuple(documents)


def _field(item: dict[str, msgspec.Raw], name: str, kind: object) -> str | None:
    """Return the value of a field if it has this type, else None."""
    if name not in item:
        return None
    try:
        value: str = msgspec.json.decode(item[name], type=kind)
    except msgspec.MsgspecError:
        return None
    return value
