r"""Text that a reader of the rendered response does not see, or sees struck out.

This is the content of comments, of hidden, collapsed, white or struck-out elements (HTML, Markdown
and LaTeX), and what is in attributes and link targets.
"""

from __future__ import annotations

import re

_ELEMENTS = "script|style|template|head|title|noscript|datalist|details|del|s|strike"
_ATTRIBUTES = (
    r"\bhidden\b|display\s*:\s*none|visibility\s*:\s*hidden|opacity\s*:\s*0|font-size\s*:\s*0"
    r"|color\s*[:=]\s*[\"']?(?:white|transparent|#fff\b|#ffffff|rgba?\(255\s*,\s*255\s*,\s*255)"
)
_COMMANDS = (
    "h?v?phantom|s?out|st|x?b?cancel|label|index|iffalse|nocite|invisible|pdftooltip|comment"
)
_HIDING = re.compile(
    rf"""
    (?!\\(?![a-z]))  # a backslash that begins no command
    (?:(?P<comment><!--|<!\[CDATA\[|<\?|/\*|\{{\#|\{{\{{!|<%|\\begin\{{comment\}}|\\iffalse\b)
    | <(?P<tag>[a-z][a-z0-9]{{0,12}})(?P<attributes>\s[^<>]{{0,1000}})?/?>
    | \\(?:{_COMMANDS})\s{{0,8}}(?P<argument>\{{)
    | (?:\\textcolor|\{{?\\color)\s{{0,8}}(?P<color>\{{(?:white|transparent)\}}\s{{0,8}}\{{?)
    | (?P<struck>~~[^~\n]{{1,1000}}~~|\|\|[^|\n]{{1,1000}}\|\||>![^\n!]{{1,1000}}!<)
    | (?P<image>!\[[^\[\]]{{0,1000}}\]\([^()\n]{{0,1000}}\))
    | \[(?P<link>[^\[\]]{{0,1000}})\]\([^()\n]{{0,1000}}(?:\([^()\n]{{0,200}}\))?[^()\n]{{0,200}}\)
    | (?P<definition>(?:^|\n)[ \t]{{0,3}}\[[^\[\]\n]{{1,200}}\]:[^\n]*)
    | (?P<unticked>(?:^|\n)[ \t]{{0,8}}[-*+][ \t]\[[ ]\][^\n]*)
    | (?P<remark>(?:^|(?<=\s))(?<!\d\s)%(?!\d[\dA-F])(?=\s?\w)[^\n]*)
    | (?P<conceal>\x1b\[8m))
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MARKS = ("<", "~~", "||", ">!", "](", "]:", "\\", "%", "/*", "{", "\x1b", "[ ]")
_ENDS = {
    "<!--": "-->", "<![cdata[": "]]>", "<?": "?>", "/*": "*/", "{#": "#}", "{{!": "}}",
    "<%": "%>", "\\begin{comment}": "\\end{comment}", "\\iffalse": "\\fi",
}  # fmt: skip
_IS_HIDDEN = re.compile(_ATTRIBUTES, re.IGNORECASE)
_IS_HIDDEN_ELEMENT = re.compile(_ELEMENTS, re.IGNORECASE)
_COMMAND = re.compile(r"\\[a-zA-Z]")  # a "%" begins a comment in LaTeX
_VOID = frozenset(("br", "hr", "img", "input", "meta", "link", "wbr", "source", "track", "area"))
_LABEL = re.compile(r"\D{0,12}\d{1,4}")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


# Characters of which no one knows what a reader sees: control characters other than white space and
# a lone "\r", overrides of the direction, private characters, noncharacters, and marks that strike
# a character out or enclose it, without that of the keycaps of emojis. Tags are unreadable outside
# of flags, and variation selectors in runs or, if supplementary, not after an ideograph.
_UNREADABLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u202d\u202e\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff"
    "\U000f0000-\U0010ffff\u0334-\u0338\u0488\u0489\u20d2\u20d3\u20d8-\u20da\u20dd-\u20e0\u20e2"
    "\u20e4-\u20e6\u20ea\u20eb\ua670-\ua672\ufff9-\ufffb]"
    "|\r(?!\n)|(?<![0-9#*\ufe0f])\u20e3"
    "|(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0000-\U000e007f]"
    "|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2}"
    "|(?<![\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]"
)
# Embeddings and isolates have a use only in a text with letters that are written from the right.
_EMBEDDING = re.compile("[\u202a\u202b\u2066-\u2068]")
_FROM_THE_RIGHT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)


def is_unreadable(text: str) -> bool:
    r"""Return whether a text contains characters of which no one knows what a reader sees.

    These are control characters, private characters, marks that strike out or enclose others, and
    changes of the direction in a text whose letters have only one.

    >>> [is_unreadable(text) for text in ("Paris\b\b", "Paris \u20e0", "São Paulo\n", "1️⃣ Paris")]
    [True, True, False, False]
    """
    if _UNREADABLE.search(text):
        return True
    if text.isascii() or not _EMBEDDING.search(text):
        return False
    return _FROM_THE_RIGHT.search(text) is None


def shown(text: str, *, links: bool = False) -> str:
    """Return the text that a reader sees.

    Hidden parts are removed. A link is replaced by its text, unless `links` is true. The time is
    linear.

    >>> shown("~~Rome~~ <!-- Oslo --> [Paris](https://example.org/Lima)").split()
    ['Paris']
    """
    if not any(mark in text for mark in _MARKS):
        return text
    pieces: list[str] = []
    at = 0
    is_latex = _COMMAND.search(text) is not None
    while match := _HIDING.search(text, at):
        if match.lastgroup == "remark" and not is_latex and not _begins_line(match):
            end, replacement = match.start() + 1, "%"  # "a share in % of all"
        else:
            end, replacement = _rest(match)
            if links and match.lastgroup == "link":
                replacement = match[0]
        pieces += (text[at : match.start()], replacement)
        at = end
    pieces.append(text[at:])
    return "".join(pieces)


def _begins_line(match: re.Match[str]) -> bool:
    before = match.string[max(match.start() - 1, 0) : match.start()]
    return before in ("", "\n")


def _rest(match: re.Match[str]) -> tuple[int, str]:
    """Return the end of a part that a mark begins, and what a reader sees of it."""
    text, end, kind = match.string, match.end(), match.lastgroup
    if kind == "comment":
        return _after(text, _ENDS[match[0].lower()], end), " "
    if kind in ("tag", "attributes"):
        return _element(match)
    if kind in ("argument", "color"):
        return _closed(text, end) if match[0].endswith("{") else len(text), " "
    if kind == "link":
        return end, f"[{match['link']}]" if _LABEL.fullmatch(match["link"]) else match["link"]
    if kind == "conceal":
        return _after(text, "\x1b[", end), " "
    return end, "\n" if match[0].startswith("\n") else " "


def _element(match: re.Match[str]) -> tuple[int, str]:
    """Return the end of a hidden element, or that of its opening tag, without the attributes."""
    name, attributes = match["tag"].lower(), match["attributes"] or ""
    if name in _VOID:
        return match.end(), "\n"
    if _IS_HIDDEN_ELEMENT.fullmatch(name) or (attributes and _IS_HIDDEN.search(attributes)):
        closing = re.compile(rf"</{name}\s{{0,8}}>", re.IGNORECASE)
        found = closing.search(match.string, match.end())
        if name == "s" and not found and not match.string[: match.start()].strip():
            return match.end(), " "  # the token that begins a sequence
        return found.end() if found else len(match.string), " "
    return match.end(), f"<{name}>" if attributes else match[0]


def _after(text: str, mark: str, start: int) -> int:
    """Return the position after a mark, or the end of the text."""
    at = text.find(mark, start)
    return at + len(mark) if at >= 0 else len(text)


def _closed(text: str, start: int) -> int:
    """Return the position after the brace that closes an argument, or the end of the text."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if not depth:
            return brace.end()
    return len(text)
