"""Dialects: the tags and rules by which published search agents write queries, results and answers.

search-r1     PeterGriffinJin/Search-R1@a14dc3a search_r1/llm_agent/generation.py
r1-searcher   RUCAIBox/R1-Searcher@631167c experience_maker.py
research      Agent-RL/ReSearch@f228480 re_search.py, template.py
tools         the OpenAI chat format
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

import msgspec

from rag_rewards.turns.turn import Result

DialectName = Literal["auto", "search-r1", "r1-searcher", "research", "tools"]
Pair = tuple[str, str]
"""An opening and a closing tag."""

THINK: Pair = ("<think>", "</think>")
ANSWER: Pair = ("<answer>", "</answer>")


@dataclass(frozen=True)
class Dialect:
    """The way in which an agent writes its actions.

    name     name of the dialect
    query    tags around a query, None if queries are tool calls
    block    tags around the results, None if results are tool messages
    acts     which of several queries of a turn the environment receives
    """

    name: str
    query: Pair | None = None
    block: Pair | None = None
    acts: Literal["first", "last", "all"] = "all"

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All pairs of tags of the dialect."""
        return tuple(pair for pair in (THINK, self.query, self.block, ANSWER) if pair)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """A pattern that matches every tag of the dialect. It contains no repetition."""
        return re.compile("|".join(re.escape(tag) for pair in self.pairs for tag in pair))

    @cached_property
    def empty_block(self) -> str:
        """The block of a search without hits, as the agent's environment writes it."""
        if self.block is None:
            return "[]"
        opening, closing = self.block
        return f"{opening}None{closing}" if self.name == "r1-searcher" else opening + closing

    def clean(self, query: str) -> str:
        """Return a query as the environment receives it."""
        if self.name == "r1-searcher":
            return " ".join(query.replace('"', "").split())
        return query.strip()


SEARCH: Pair = ("<search>", "</search>")
SEARCH_R1 = Dialect("search-r1", SEARCH, ("<information>", "</information>"), "first")
R1_SEARCHER = Dialect(
    "r1-searcher",
    ("<|begin_of_query|>", "<|end_of_query|>"),
    ("<|begin_of_documents|>", "<|end_of_documents|>"),
    "last",
)
RESEARCH = Dialect("research", SEARCH, ("<result>", "</result>"), "last")
TOOLS = Dialect("tools")
DIALECTS = {each.name: each for each in (SEARCH_R1, R1_SEARCHER, RESEARCH, TOOLS)}

_QUERY = re.compile(r"<search>|<\|begin_of_query\|>")
_BLOCK = re.compile(r"<information>|<result>")


def has_block(text: str) -> bool:
    """Return whether a text contains the opening tag of a results block of any dialect."""
    return "<information>" in text or "<result>" in text or "<|begin_of_documents|>" in text


def has_query(text: str) -> bool:
    """Return whether a text contains the opening tag of a query of any dialect."""
    return "<search>" in text or "<|begin_of_query|>" in text


def dialect_of(
    words: Sequence[str], observations: Sequence[str | None], has_tools: bool
) -> Dialect:
    r"""Return the dialect of a rollout from the words of each turn and what followed each.

    Tool calls and tool messages decide first, then the first query tag. <search> belongs to two
    dialects: the first block after it decides, and then whether the last turn contains a box.

    >>> dialect_of([r"<search>a</search>", r"\boxed{b}"], [None, None], False).name
    'research'
    """
    if has_tools:
        return TOOLS
    for i, text in enumerate(words):
        tag = _QUERY.search(text)
        if tag is None:
            continue
        if tag[0] != "<search>":
            return R1_SEARCHER
        if block := _first_block(words, observations, i, tag.end()):
            return RESEARCH if block == "<result>" else SEARCH_R1
        break
    return RESEARCH if words and "\\boxed" in words[-1] else SEARCH_R1


def _first_block(
    words: Sequence[str], observations: Sequence[str | None], turn: int, at: int
) -> str | None:
    for text, observation in zip(words[turn:], observations[turn:], strict=True):
        found = _BLOCK.search(text, at) or (_BLOCK.search(observation) if observation else None)
        if found:
            return found[0]
        at = 0
    return None


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
