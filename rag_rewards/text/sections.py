"""Sections such as <answer>…</answer>, found by one scan over the tags."""

from __future__ import annotations

import re
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


@dataclass(frozen=True)
class Tags:
    """The section names of a recipe, in the order in which its format wants them."""

    names: tuple[str, ...]
    style: SectionStyle = SectionStyle()
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = "|".join(re.escape(name) for name in sorted({*self.names, "think"}))
        flags = re.IGNORECASE if self.style.ignore_case else 0
        object.__setattr__(self, "pattern", re.compile(f"<(/?)({names})>", flags))


class Cut(msgspec.Struct, frozen=True, gc=False):
    """A response cut into the sections of one recipe.

    `content` holds the first complete pair of each section outside thinking. `exact` says that
    the response is these sections in this order, each once, and white space apart. `counts`
    holds the occurrences of every opening and closing tag, wherever they stand.
    """

    content: dict[str, str]
    exact: bool
    repeated: frozenset[str]
    counts: dict[str, int]


def cut(text: str, tags: Tags) -> Cut:
    """Cut a response at its tags. Linear; never raises.

    Text between <think> and the next </think> is thinking, an unclosed <think> reaches to the
    end: no other section is found there. Tag names match exactly.

    >>> cut("<think>Rome?</think><answer>Paris</answer>", Tags(("think", "answer"))).content
    {'think': 'Rome?', 'answer': 'Paris'}
    """
    style = tags.style
    content: dict[str, str] = {}
    counts: dict[str, int] = {}
    opened: dict[str, int] = {}
    repeated: set[str] = set()
    first: list[tuple[str, int, int]] = []  # `exact` needs no more than the first few tags
    thinking, thought = -1, -1
    for match in tags.pattern.finditer(text):
        tag, closing, name = match.group(0, 1, 2)
        if style.ignore_case:
            tag, name = tag.lower(), name.lower()
        start, end = match.span()
        counts[tag] = counts.get(tag, 0) + 1
        if len(first) <= 2 * len(tags.names):
            first.append((tag, start, end))
        if thinking >= 0:
            if closing and name == "think":
                content.setdefault("think", text[thinking:start])
                thinking, thought = -1, start
        elif closing:
            if name in opened and name not in content:
                inside = text[opened[name] : start]
                content[name] = without_thinking(inside) if thought > opened[name] else inside
        elif name in opened:
            repeated.add(name)
            if name == "think":
                thinking = end
        else:
            opened[name] = end
            if name == "think":
                thinking = end
    if style.unclosed == "to_end" and thinking < 0:
        _close_last(text, content, opened, counts, first)
    if style.repeated == "missing":
        for name in repeated:
            content.pop(name, None)
    exact = not repeated and _is_exact(text, tags.names, first)
    return Cut(content, exact, frozenset(repeated), counts)


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


def _is_exact(text: str, tags: tuple[str, ...], sequence: list[tuple[str, int, int]]) -> bool:
    if len(sequence) != 2 * len(tags):
        return False
    at = 0
    for i, tag in enumerate(tags):
        (opening, start, _), (closing, _, end) = sequence[2 * i], sequence[2 * i + 1]
        if opening != f"<{tag}>" or closing != f"</{tag}>" or text[at:start].strip():
            return False
        at = end
    return not text[at:].strip()


def _close_last(
    text: str,
    content: dict[str, str],
    opened: dict[str, int],
    counts: dict[str, int],
    first: list[tuple[str, int, int]],
) -> None:
    """Let the last section that opened and never closed reach to the end of the text."""
    last = max((name for name in opened if name not in content), key=opened.__getitem__, default="")
    if not last:
        return
    closing = f"</{last}>"
    torn = next((n for n in range(len(closing) - 1, 0, -1) if text.endswith(closing[:n])), 0)
    end = len(text) - torn
    if end < opened[last]:
        return
    content[last] = text[opened[last] : end]
    counts[closing] = counts.get(closing, 0) + 1
    first.append((closing, end, len(text)))
