r"""Parts of a response that do not belong to the answer: thinking, preparation, forged documents.

Models mark it with different tags: <think>, <thinking>, <reasoning>, <reflection>, [THINK],
◁think▷, <seed:think>, <|begin_of_thought|>, <|START_THINKING|> or <|channel|>analysis<|message|>.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_NAME = (
    r"think(?:ing)?|thoughts?|reasoning|reflect(?:ions?|ing)?|scratch[-_ ]?pad|monologue|cot|"
    r"deliberat(?:ions?|ing)|brainstorm(?:ing)?|musings?|ponder(?:ing)?|contemplation|introspection"
)
_INITIALS = "tsrmcdbpi"  # of the names; without this check, each name is tried at each tag
_TAG = re.compile(
    rf"""
    (?:(?P<angle><\s{{0,4}})|[\[◁])(?P<slash>/?)\s{{0,4}}
    (?P<bar>\|?)(?P<slash_2>/?)
    (?P<before>(?:[a-z]{{1,12}}[_:\-]){{0,3}}(?:ant)?)
    (?=[{_INITIALS}])(?P<name>{_NAME})
    (?P<after>(?:[_:\-][a-z]{{1,12}}){{0,2}})
    (?(angle)(?:\s[^<>=]{{1,50}}=[^<>]{{0,200}})?)\|?\s{{0,4}}[>\]▷]
    | <\|channel\|>\s{{0,4}}(?P<channel>analysis|commentary)\b
    | (?P<end><\|end\|>|<\|channel\|>\s{{0,4}}final\s{{0,4}}<\|message\|>)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OPENING = re.compile(r"[<\[◁]")
_SQUARE = re.compile(r"\[[tTrRsS/]")
_CLOSES = re.compile(r"(?:^|_)(?:end|close|stop)", re.IGNORECASE)


def without_thinking(text: str) -> str:
    """Return a text without its thinking. An unclosed tag extends to the end.

    >>> without_thinking("<think>Paris</think> Rome"), without_thinking("[THINK]Paris[/THINK] Rome")
    (' Rome', ' Rome')
    """
    if text.startswith("<think>"):
        # In most responses, the next tag closes the thinking, and what follows is short.
        end = text.find("<", len("<think>"))
        if text[end : end + len("</think>")] == "</think>":
            text = text[end + len("</think>") :]
    has_opening = "<" in text or "[" in text or "◁" in text
    return replace_thinking(text, "") if has_opening else text


_PREPARATION = re.compile(
    r"<(reason|rationale|analysis|plan(?:ning)?|draft|notes?|critique|evidence|extract|relevance"
    r"|observation|context|documents?|passages?|references?|information|search|results?"
    r"|tool_call|tool_response)(?:\s[^<>]{0,200})?>.*?(?:</\1\s{0,4}>|\Z)",
    re.IGNORECASE | re.DOTALL,
)


def without_preparation(text: str) -> str:
    """Return a text without thinking, and without sections that prepare the answer.

    >>> without_preparation("<analysis>See [1].</analysis> Paris [2]")
    ' Paris [2]'
    """
    text = without_thinking(text)
    return _PREPARATION.sub("", text) if "<" in text else text


_FORGED_LINE = re.compile(
    r"(?i)\n[ \t]{0,8}(?:>[^\n]*|"
    # A labelled passage ends at the next blank line.
    r"(?:(?:document|doc|passage|source|sources|title|references?)\b[ \t]{0,8}"
    r"(?:\[?\d{1,3}\]?)?[ \t]{0,8}:|\[\d{1,3}\][ \t]{0,8}(?:title|\())[^\n]*(?:\n[^\n]+)*)"
)


def without_forgeries(text: str) -> str:
    """Return a text without quoted lines and labelled passages of documents.

    >>> without_forgeries("It is Rome.\\nDocument 1: Paris is large.")
    'It is Rome.\\n'
    """
    if "\n" not in text:
        return text
    lines = f"\n{text}"
    own = _FORGED_LINE.sub("\n", lines)
    return own if _FORGED_LINE.match(lines) else own[1:]


def replace_thinking(text: str, replacement: str, kept: Collection[str] = ()) -> str:
    """Return a text with a replacement for each part that is thinking, tags included.

    Parts inside tags with a name of `kept` stay as they are. An unclosed tag extends to the end.
    """
    if "<" not in text and not may_have_square_tags(text):
        return text
    pieces: list[str] = []
    name, start, at = "", 0, 0
    for tag, tag_start, tag_end in (*_tags(text), ("", len(text), len(text))):
        if not name:
            if not tag.startswith("/"):
                name, start = tag, tag_start
        elif tag in (f"/{name}", ""):
            if name not in kept:
                pieces += (text[at:start], replacement)
                at = tag_end
            name = ""
    return "".join(pieces) + text[at:]


def may_have_square_tags(text: str) -> bool:
    """Return whether a text can contain a thinking tag in brackets other than < and >."""
    if "◁" in text or "[" not in text:
        return "◁" in text
    return _SQUARE.search(text, text.find("["), text.rfind("[") + 2) is not None


def _tags(text: str) -> list[tuple[str, int, int]]:
    """Return the name, the start and the end of each thinking tag."""
    tags: list[tuple[str, int, int]] = []
    end = 0
    for opening in _OPENING.finditer(text):
        if opening.start() >= end and (match := _TAG.match(text, opening.start())):
            end = match.end()
            tags.append((_name_of(match), match.start(), end))
    return tags


def _name_of(match: re.Match[str]) -> str:
    """Return the name of a tag in lower case, with a slash before that of a closing tag.

    The names of tags of another form than <name> begin with a bar.
    """
    if match["channel"]:
        return "|channel"
    if match["end"]:
        return "/|channel"
    name, before, after = match["name"].lower(), match["before"], match["after"]
    if not match["angle"] or match["bar"] or before or after:
        name = f"|{name}"
    closes = match["slash"] or match["slash_2"] or _CLOSES.search(before) or _CLOSES.search(after)
    return f"/{name}" if closes else name
