"""Sections such as <answer>…</answer>, found by one scan over the tags."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from rag_rewards.settings import about
from rag_rewards.text.thinking import may_have_square_tags, replace_thinking


class SectionStyle(msgspec.Struct, frozen=True):
    """How tags are read."""

    tags: Annotated[
        Literal["exact", "unclosed", "lenient"],
        about(
            "exact: pairs of tags as the prompt writes them; unclosed: the last section can lack "
            "its closing tag, as after a stop string, and ends with the response; lenient: also "
            "<ANSWER> is read as <answer>",
            "ours: a response that a limit ended has no answer",
        ),
    ] = "exact"
    repeated: Annotated[
        Literal["first", "missing"],
        about(
            "section that opens more than once outside thinking; first: the first pair of tags is "
            "read; missing: it counts as missing",
            "ours: what a search for the tags finds first",
        ),
    ] = "first"


def contents(text: str, name: str) -> list[str]:
    """Return the contents of the sections of one name, in linear time.

    >>> contents("<note>a</note> b <note>c</note><note>d", "note")
    ['a', 'c']
    """
    opening, closing = f"<{name}>", f"</{name}>"
    parts, end = [], 0
    while (start := text.find(opening, end)) >= 0:
        if (end := text.find(closing, start)) < 0:
            break
        parts.append(text[start + len(opening) : end])
    return parts


_THOUGHT = ("think", "/think")
_Pair = tuple[str, str, str, int]
"""(name, opening and closing tag without their first bracket, length of the opening one)."""


@dataclass(frozen=True)
class Tags:
    """The section names of a recipe, in the order of its format."""

    names: tuple[str, ...]
    style: SectionStyle = SectionStyle()
    all_tags: frozenset[str] = field(init=False, repr=False, compare=False)
    well_formed: list[str] = field(init=False, repr=False, compare=False)
    longest: int = field(init=False, repr=False, compare=False)
    pairs: tuple[_Pair, ...] = field(init=False, repr=False, compare=False)
    thought_first: tuple[_Pair, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pairs = tuple(map(_pair, self.names))
        object.__setattr__(self, "pairs", pairs)
        thought_first = () if "think" in self.names else (_pair("think"), *pairs)
        object.__setattr__(self, "thought_first", thought_first)
        well_formed = [tag for name in self.names for tag in (name, f"/{name}")]
        all_tags = frozenset((*well_formed, *_THOUGHT))
        object.__setattr__(self, "well_formed", well_formed)
        object.__setattr__(self, "all_tags", all_tags)
        object.__setattr__(self, "longest", max(map(len, all_tags)) + 1)


def _pair(name: str) -> _Pair:
    return name, f"{name}>", f"/{name}>", len(name) + 1


class Cut(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A response cut into the sections of one recipe.

    content   text of each section: its first complete pair of tags outside thinking
    repeated  sections that open more than once outside thinking
    exact     whether the response consists of these sections in this order, each once, and white
              space; an empty <think></think> before them, which chat templates write, is ignored
    """

    content: dict[str, str]
    repeated: frozenset[str]
    exact: bool
    _text: str
    _tags: Tags

    @property
    def counts(self) -> dict[str, int]:
        """The number of occurrences of every opening and closing tag in the whole text."""
        places = _tags_in(self._text.split("<"), self._tags)
        if self._tags.style.tags != "exact":
            _cut_any(self._text, self._tags, places)  # adds the closing tag of the last section
        return Counter(f"<{tag}>" for tag, _, _ in places)


def cut(text: str, tags: Tags) -> Cut:
    """Cut a response into its sections, in linear time and without errors.

    The text between <think> and the next </think> is thinking. An unclosed <think> extends to the
    end. Thinking contains no other section. Tag names match exactly.

    >>> cut("<think>Rome?</think><answer>Paris</answer>", Tags(("think", "answer"))).content
    {'think': 'Rome?', 'answer': 'Paris'}
    """
    # Most responses are well-formed: their only brackets are the tags, in the right order.
    whole = text
    if may_have_square_tags(text):
        text = _with_marks(text, tags)
    pieces = text.split("<")
    result = _cut_well_formed(text, pieces, tags)
    if result is None:
        places = _tags_in(pieces, tags)
        if len(places) < len(pieces) - 1:  # other brackets can be other thinking tags
            text = _with_marks(text, tags)
            places = _tags_in(text.split("<"), tags)
        result = _cut_any(text, tags, places)
    return result if text is whole else _without_marks(result, whole)


_MARK = "\x1a"
"""It replaces thinking with other tags than <think>, so that it is not white space."""


def _with_marks(text: str, tags: Tags) -> str:
    """Return a text with a mark for each part that is thinking with other tags than <think>."""
    marked = replace_thinking(text.replace(_MARK, " "), _MARK, (*tags.names, "think"))
    return marked if _MARK in marked else text


def _without_marks(cut: Cut, text: str) -> Cut:
    """Return the cut of a text with marks as that of the text itself."""
    content = {name: inside.replace(_MARK, "") for name, inside in cut.content.items()}
    return Cut(content, cut.repeated, cut.exact, text, cut._tags)


def _cut_well_formed(text: str, pieces: list[str], tags: Tags) -> Cut | None:
    """Return the cut of a text whose only brackets are the tags in their order, else None.

    `pieces` is the text, split at its opening brackets. Thinking can be before the tags, also if it
    is not a section of the recipe.
    """
    pairs = tags.pairs
    if tags.thought_first and len(pieces) > 1 and pieces[1][:6] == "think>":
        pairs = tags.thought_first
    if len(pieces) != 2 * len(pairs) + 1:
        return None
    content: dict[str, str] = {}
    around = pieces[0]
    at = 1
    for name, opening, closing, size in pairs:
        inside, after = pieces[at], pieces[at + 1]
        if inside[:size] != opening or after[: size + 1] != closing:
            return None
        content[name] = inside[size:]
        around += after[size + 1 :]
        at += 2
    if pairs is tags.thought_first:
        around += content["think"]
    return Cut(content, _NONE, not around.strip(), text, tags)


_TagPlaces = list[tuple[str, int, int]]
"""(name, or /name of a closing tag; start of the tag; end of the tag)."""


def _tags_in(pieces: list[str], tags: Tags) -> _TagPlaces:
    """Return the tags of the recipe in a text that is split at its opening brackets."""
    places: _TagPlaces = []
    all_tags, longest, fold = tags.all_tags, tags.longest, tags.style.tags == "lenient"
    at = len(pieces[0])
    for piece in pieces[1:]:
        close = piece.find(">", 0, longest)
        if close > 0:
            tag = piece[:close].lower() if fold else piece[:close]
            if tag in all_tags:
                places.append((tag, at, at + close + 2))
        at += len(piece) + 1
    return places


def _end_of_empty_thinking(text: str, places: _TagPlaces) -> int:
    """Return the end of an empty <think></think> with which a text begins, 0 without one."""
    if [tag for tag, _, _ in places[:2]] != [*_THOUGHT]:
        return 0
    (_, start, opened), (_, closing, end) = places[:2]
    return 0 if text[:start].strip() or text[opened:closing].strip() else end


def _is_exact(text: str, places: _TagPlaces, at: int = 0) -> bool:
    """Return whether only white space is around the sections and between them."""
    for i in range(0, len(places), 2):
        start = places[i][1]
        if start > at and not text[at:start].isspace():
            return False
        at = places[i + 1][2]
    return at == len(text) or text[at:].isspace()


def _cut_any(text: str, tags: Tags, places: _TagPlaces) -> Cut:
    """Return the cut of a text with sections in any order and number, also nested or unclosed."""
    style = tags.style
    content: dict[str, str] = {}
    opened: dict[str, int] = {}
    repeated: set[str] = set()
    thinking, thought = -1, -1
    for tag, start, end in places:
        closing = tag[0] == "/"
        name = tag[1:] if closing else tag
        if thinking >= 0:
            if tag == "/think":
                content.setdefault("think", text[thinking:start])
                thinking, thought = -1, start
        elif closing:
            if name in opened and name not in content:
                inside = text[opened[name] : start]
                content[name] = (
                    _without_thinking(inside, style) if thought > opened[name] else inside
                )
        else:
            if name in opened:
                repeated.add(name)
            else:
                opened[name] = end
            if name == "think":
                thinking = end
    if style.tags != "exact" and thinking < 0:
        last = _close_last(text, content, opened, style)
        if last:
            places.append(last)
    begin = 0 if "think" in tags.names else _end_of_empty_thinking(text, places)
    of_sections = places[2:] if begin else places
    exact = [tag for tag, _, _ in of_sections] == tags.well_formed and _is_exact(
        text, of_sections, begin
    )
    if style.repeated == "missing":
        for name in repeated:
            content.pop(name, None)
    return Cut(content, frozenset(repeated), exact, text, tags)


_NONE: frozenset[str] = frozenset()
_THOUGHT_TEXT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_THOUGHT_TEXT_OF_ANY_CASE = re.compile(_THOUGHT_TEXT.pattern, re.DOTALL | re.IGNORECASE)


def _without_thinking(inside: str, style: SectionStyle) -> str:
    """Return a section without <think>…</think>. An unclosed <think> extends to the end."""
    return (_THOUGHT_TEXT_OF_ANY_CASE if style.tags == "lenient" else _THOUGHT_TEXT).sub("", inside)


def _close_last(
    text: str, content: dict[str, str], opened: dict[str, int], style: SectionStyle
) -> tuple[str, int, int] | None:
    """Close the last unclosed section at the end of the text, and return its closing tag."""
    last = max((name for name in opened if name not in content), key=opened.__getitem__, default="")
    closing = f"</{last}>"
    tail = text[-len(closing) :]
    if style.tags == "lenient":
        tail = tail.lower()
    torn = next((n for n in range(len(closing) - 1, 0, -1) if tail.endswith(closing[:n])), 0)
    end = len(text) - torn
    if not last or end < opened[last]:
        return None
    content[last] = _without_thinking(text[opened[last] : end], style)
    return f"/{last}", end, len(text)
