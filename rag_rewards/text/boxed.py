r"""The contents of \boxed{…}, with nested braces."""

from __future__ import annotations

import re

# A run of braces is one match, so that a megabyte of braces takes few steps. An escaped brace is
# an ordinary character.
_TOKEN = re.compile(r"\\boxed\s{0,8}\{|(?:\\\\)+|\\.|\{+|\}+", re.DOTALL)
# Commands whose argument is text. They change the font, but not the answer.
_FONTS = "text(?:bf|it|md|normal|rm|sc|sf|sl|tt|up)?|math(?:bf|it|normal|rm|sf|tt)|mbox|hbox|emph"
_BRACE = re.compile(
    rf"(?P<font>\\(?:{_FONTS})\s{{0,8}}\{{)|\\.|(?P<open>\{{)|(?P<close>\}})", re.DOTALL
)


def last_box(text: str) -> str | None:
    r"""Return the content of the last complete box, or None if no box is closed.

    >>> last_box(r"\boxed{Rome} no, \boxed{\text{Paris}}")
    '\\text{Paris}'
    """
    if (simple := _simple_box(text)) is not None:
        return simple
    best: tuple[int, int] | None = None
    depth: list[int] = []  # ≥ 0: position where the content of a box starts; < 0: −(open braces)
    start = text.find("\\boxed")
    if start < 0:
        return None
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        if token[0] == "{":
            if depth and depth[-1] < 0:
                depth[-1] -= len(token)
            else:
                depth.append(-len(token))
        elif token[0] == "}":
            close = match.start()
            remaining = len(token)
            while remaining and depth:
                top = depth[-1]
                if top >= 0:
                    depth.pop()
                    if best is None or top > best[0]:
                        best = (top, close)
                    close += 1
                    remaining -= 1
                    continue
                closed = min(remaining, -top)
                depth[-1] += closed
                close += closed
                remaining -= closed
                if not depth[-1]:
                    depth.pop()
        elif token.startswith("\\boxed"):
            depth.append(match.end())
    return text[best[0] : best[1]] if best else None


def _simple_box(text: str) -> str | None:
    """Return the last box if it contains neither braces nor escapes, as most do, else None."""
    start = text.rfind("\\boxed")
    end = text.find("}", start)
    if end < 0 or not text.startswith("\\boxed{", start) or text[start - 1 : start] == "\\":
        return None
    content = text[start + len("\\boxed{") : end]
    return None if "{" in content or "\\" in content else content


def first_box(text: str) -> str | None:
    r"""Return the text from the first \boxed{ to the next closing brace, or None.

    Source: TruthRL, the authors' code.

    >>> first_box(r"\boxed{\text{Paris}}")
    '\\text{Paris'
    """
    _, opening, rest = text.partition("\\boxed{")
    content, closing, _ = rest.partition("}")
    return content if opening and closing else None


def unwrap(box: str) -> str:
    r"""Return the content of a box without \text{…} and font commands; their arguments remain.

    A content whose braces are not pairs is returned unchanged. Other commands stay.

    >>> unwrap(r"\text{Paris}"), unwrap(r"330 \mathrm{m}"), unwrap(r"\frac{1}{2}")
    ('Paris', '330 m', '\\frac{1}{2}')
    """
    if "\\" not in box:
        return box
    removed: list[tuple[int, int]] = []
    fonts: list[tuple[int, int] | None] = []  # open braces; None for one without a font command
    for match in _BRACE.finditer(box):
        kind = match.lastgroup
        if kind == "close":
            if not fonts:
                return box
            if (font := fonts.pop()) is not None:
                removed += (font, match.span())
        elif kind is not None:
            fonts.append(match.span() if kind == "font" else None)
    if fonts:
        return box
    pieces, at = [], 0
    for start, end in sorted(removed):
        pieces.append(box[at:start])
        at = end
    return "".join(pieces) + box[at:]
