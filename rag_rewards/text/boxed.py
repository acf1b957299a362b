r"""The contents of \boxed{…}, with nested braces."""

from __future__ import annotations

import re

# A run of braces is one match, so that a megabyte of braces takes few steps. An escaped brace is
# an ordinary character.
_TOKEN = re.compile(r"\\boxed\s{0,8}\{|(?:\\\\)+|\\.|\{+|\}+", re.DOTALL)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_WRAPPER = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{(.*)\}", re.DOTALL)


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
    r"""Return the text in a box that is a single \text{…} or font command, else the box itself.

    >>> unwrap(r"\text{Paris}")
    'Paris'
    """
    match = _WRAPPER.fullmatch(box.strip())
    return match[1] if match and _closes_at_end(match[1]) else box


def _closes_at_end(inside: str) -> bool:
    r"""Return whether the braces around a text form a pair, unlike those of \text{a} \text{b}."""
    depth = 0
    for brace in _BRACE.findall(inside):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    escaped = (len(inside) - len(inside.rstrip("\\"))) % 2 == 1
    return depth == 0 and not escaped
