r"""\boxed{…}, with nested braces."""

from __future__ import annotations

import re

# Runs of braces come as one match, so that a megabyte of them costs no megabyte of steps;
# an escaped brace is a character like any other.
_TOKEN = re.compile(r"\\boxed\s{0,8}\{|(?:\\\\)+|\\.|\{+|\}+", re.DOTALL)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_WRAPPER = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{(.*)\}", re.DOTALL)


def last_box(text: str) -> str | None:
    r"""Content of the last complete box, braces nested. None when no box closes.

    >>> last_box(r"\boxed{Rome} no, \boxed{\text{Paris}}")
    '\\text{Paris}'
    """
    if (simple := _simple_box(text)) is not None:
        return simple
    best: tuple[int, int] | None = None
    depth: list[int] = []  # ≥ 0: where a box's content starts; < 0: that many plain braces
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
            left = len(token)
            while left and depth:
                top = depth[-1]
                if top >= 0:
                    depth.pop()
                    if best is None or top > best[0]:
                        best = (top, close)
                    close += 1
                    left -= 1
                    continue
                taken = min(left, -top)
                depth[-1] += taken
                close += taken
                left -= taken
                if not depth[-1]:
                    depth.pop()
        elif token.startswith("\\boxed"):
            depth.append(match.end())
    return text[best[0] : best[1]] if best else None


def _simple_box(text: str) -> str | None:
    """The last box where it holds neither braces nor escapes, as most do; None otherwise."""
    start = text.rfind("\\boxed")
    end = text.find("}", start)
    if end < 0 or not text.startswith("\\boxed{", start) or text[start - 1 : start] == "\\":
        return None
    content = text[start + len("\\boxed{") : end]
    return None if "{" in content or "\\" in content else content


def first_box(text: str) -> str | None:
    r"""The authors' reading: the first \boxed{, up to the first closing brace.

    >>> first_box(r"\boxed{\text{Paris}}")
    '\\text{Paris'
    """
    _, found, rest = text.partition("\\boxed{")
    content, closed, _ = rest.partition("}")
    return content if found and closed else None


def unwrap(box: str) -> str:
    r"""The text of a box that is one \text{…} or font command, else the box itself.

    >>> unwrap(r"\text{Paris}")
    'Paris'
    """
    match = _WRAPPER.fullmatch(box.strip())
    return match[1] if match and _closes_at_end(match[1]) else box


def _closes_at_end(inside: str) -> bool:
    r"""Whether the braces around a text are a pair: not so in \text{a} \text{b}."""
    depth = 0
    for brace in _BRACE.findall(inside):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    escaped = (len(inside) - len(inside.rstrip("\\"))) % 2 == 1
    return depth == 0 and not escaped
