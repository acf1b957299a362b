"""Sections such as <answer>…</answer>, found by one scan over the tags."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import msgspec


class SectionStyle(msgspec.Struct, frozen=True):
    """How tags are read.

    `ignore_case` reads <ANSWER> as <answer>. `unclosed="to_end"` lets the last section run to
    the end of a truncated response. `repeated="missing"` makes a section that opens twice
    outside thinking count as missing instead of being read at its first pair.
    """

    ignore_case: bool = False
    unclosed: Literal["missing", "to_end"] = "missing"
    repeated: Literal["first", "missing"] = "first"


_THOUGHT = ("think", "/think")
_Pair = tuple[str, str, str]
"""(name, opening tag, closing tag), the tags without their first bracket."""


@dataclass(frozen=True)
class Tags:
    """The section names of a recipe, in the order in which its format wants them."""

    names: tuple[str, ...]
    style: SectionStyle = SectionStyle()
    known: frozenset[str] = field(init=False, repr=False, compare=False)
    well_formed: list[str] = field(init=False, repr=False, compare=False)
    longest: int = field(init=False, repr=False, compare=False)
    pairs: tuple[_Pair, ...] = field(init=False, repr=False, compare=False)
    thought_first: tuple[_Pair, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pairs = tuple((name, f"{name}>", f"/{name}>") for name in self.names)
        object.__setattr__(self, "pairs", pairs)
        object.__setattr__(self, "thought_first", (("think", "think>", "/think>"), *pairs))
        well_formed = [tag for name in self.names for tag in (name, f"/{name}")]
        known = frozenset((*well_formed, *_THOUGHT))
        object.__setattr__(self, "well_formed", well_formed)
        object.__setattr__(self, "known", known)
        object.__setattr__(self, "longest", max(map(len, known)) + 1)


class Cut(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A response cut into the sections of one recipe.

    `content` holds the first complete pair of each section outside thinking, `repeated` the
    sections that open more than once there. `exact` says that the response is these sections in
    this order, each once, and white space apart.
    """

    content: dict[str, str]
    repeated: frozenset[str]
    exact: bool
    _text: str
    _tags: Tags

    @property
    def counts(self) -> dict[str, int]:
        """Occurrences of every opening and closing tag, wherever they stand."""
        found = _tags_in(self._text.split("<"), self._tags)
        if self._tags.style.unclosed == "to_end":
            _cut_any(self._text, self._tags, found)  # closes the last section
        return Counter(f"<{tag}>" for tag, _, _ in found)


def cut(text: str, tags: Tags) -> Cut:
    """Cut a response at its tags. Linear; never raises.

    Text between <think> and the next </think> is thinking, an unclosed <think> reaches to the
    end: no other section is found there. Tag names match exactly.

    >>> cut("<think>Rome?</think><answer>Paris</answer>", Tags(("think", "answer"))).content
    {'think': 'Rome?', 'answer': 'Paris'}
    """
    # Most responses are well-formed: as many brackets as tags, and the tags are where they belong.
    pieces = text.split("<")
    brackets = len(pieces) - 1
    if brackets == len(tags.well_formed):
        quick = _cut_well_formed(text, pieces, tags, tags.pairs)
    elif brackets == len(tags.well_formed) + 2:
        quick = _cut_well_formed(text, pieces, tags, tags.thought_first)
    else:
        quick = None
    return quick or _cut_any(text, tags, _tags_in(pieces, tags))


def _cut_well_formed(
    text: str, pieces: list[str], tags: Tags, pairs: tuple[_Pair, ...]
) -> Cut | None:
    """The cut of a text whose only brackets are these tags, in this order; else None."""
    content: dict[str, str] = {}
    exact = pairs is tags.pairs and not pieces[0].strip()
    at = 1
    for name, opening, closing in pairs:
        inside, after = pieces[at], pieces[at + 1]
        if not inside.startswith(opening) or not after.startswith(closing) or name in content:
            return None
        content[name] = inside[len(opening) :]
        if exact and after != closing:
            exact = not after[len(closing) :].strip()
        at += 2
    return Cut(content, _NONE, exact, text, tags)


_Found = list[tuple[str, int, int]]
"""(name, or /name of a closing tag; where the tag begins; where it ends)."""


def _tags_in(pieces: list[str], tags: Tags) -> _Found:
    """Every tag of the recipe in a text cut at its brackets: what follows one is looked up."""
    found: _Found = []
    known, longest, fold = tags.known, tags.longest, tags.style.ignore_case
    at = len(pieces[0])
    for piece in pieces[1:]:
        close = piece.find(">", 0, longest)
        if close > 0:
            tag = piece[:close].lower() if fold else piece[:close]
            if tag in known:
                found.append((tag, at, at + close + 2))
        at += len(piece) + 1
    return found


def _is_exact(text: str, found: _Found) -> bool:
    """Nothing but white space around the sections and between them."""
    at = 0
    for i in range(0, len(found), 2):
        start = found[i][1]
        if start > at and not text[at:start].isspace():
            return False
        at = found[i + 1][2]
    return at == len(text) or text[at:].isspace()


def _cut_any(text: str, tags: Tags, found: _Found) -> Cut:
    """The same for sections in any order and number, torn and nested."""
    style = tags.style
    content: dict[str, str] = {}
    opened: dict[str, int] = {}
    repeated: set[str] = set()
    thinking, thought = -1, -1
    for tag, start, end in found:
        closing = tag[0] == "/"
        name = tag[1:] if closing else tag
        if thinking >= 0:
            if tag == "/think":
                content.setdefault("think", text[thinking:start])
                thinking, thought = -1, start
        elif closing:
            if name in opened and name not in content:
                inside = text[opened[name] : start]
                content[name] = _said(inside, style) if thought > opened[name] else inside
        else:
            if name in opened:
                repeated.add(name)
            else:
                opened[name] = end
            if name == "think":
                thinking = end
    if style.unclosed == "to_end" and thinking < 0:
        last = _close_last(text, content, opened, style)
        if last:
            found.append(last)
    exact = [tag for tag, _, _ in found] == tags.well_formed and _is_exact(text, found)
    if style.repeated == "missing":
        for name in repeated:
            content.pop(name, None)
    return Cut(content, frozenset(repeated), exact, text, tags)


_NONE: frozenset[str] = frozenset()
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)


def _said(inside: str, style: SectionStyle) -> str:
    """A section without the thinking inside it."""
    return _THOUGHTS.sub("", inside) if style.ignore_case else without_thinking(inside)


def without_thinking(text: str) -> str:
    """The response with every <think>…</think> taken out, an unclosed one to the end.

    >>> without_thinking("<think>Paris</think> Rome")
    ' Rome'
    """
    if "<think>" not in text:
        return text
    kept, at = [], 0
    while (start := text.find("<think>", at)) >= 0:
        kept.append(text[at:start])
        end = text.find("</think>", start)
        if end < 0:
            return "".join(kept)
        at = end + len("</think>")
    kept.append(text[at:])
    return "".join(kept)


def _close_last(
    text: str, content: dict[str, str], opened: dict[str, int], style: SectionStyle
) -> tuple[str, int, int] | None:
    """Let the last section that opened and never closed reach to the end of the text."""
    last = max((name for name in opened if name not in content), key=opened.__getitem__, default="")
    closing = f"</{last}>"
    tail = text[-len(closing) :]
    if style.ignore_case:
        tail = tail.lower()
    torn = next((n for n in range(len(closing) - 1, 0, -1) if tail.endswith(closing[:n])), 0)
    end = len(text) - torn
    if not last or end < opened[last]:
        return None
    content[last] = _said(text[opened[last] : end], style)
    return f"/{last}", end, len(text)
