r"""\boxed{…} against an implementation that counts braces."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.latex import first_box, last_box, unwrap

PIECES = [
    *("\\boxed{", "\\boxed {", "\\boxed  \n{", "\\boxed", "{", "}", "{{", "}}", "\\{", "\\}"),
    *("\\text{", "x", " ", "Paris", "\\", "\\\\", "boxed{", "\\frac{1}{2}"),
]
SOUP = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=20)


def naive_last(text):
    """Return the last closed box, with a count of braces from each box."""
    at, best = max(text.find("\\boxed"), 0), None
    while at < len(text):
        if text.startswith("\\boxed", at):
            brace = at + 6
            while brace < len(text) and text[brace].isspace() and brace - at < 14:
                brace += 1
            if text[brace : brace + 1] == "{":
                end = closing(text, brace + 1)
                best = best if end is None else text[brace + 1 : end]
                at = brace + 1
                continue
        at += 2 if text[at] == "\\" else 1
    return best


def closing(text, at):
    depth = 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        depth += (text[at] == "{") - (text[at] == "}")
        if not depth:
            return at
        at += 1
    return None


@given(SOUP)
@budget(500)
def test_last_box_equals_the_naive_implementation(text):
    assert last_box(text) == naive_last(text)


@given(SOUP)
@budget(250)
def test_first_box_is_as_in_the_authors_code(text):
    start = text.find("\\boxed{")
    end = text.find("}", start)
    expected = None if start < 0 or end < 0 else text[start + 7 : end]
    assert first_box(text) == expected


FONTS = ["\\text{", "\\textbf {", "\\mathrm{", "\\emph{"]
BRACES = st.lists(
    st.sampled_from([*FONTS, "{", "}", "\\{", "\\}", "\\\\", "x", " ", "\\frac{", "\\textit"]),
    max_size=12,
).map("".join)


def naive_unwrap(text):
    """Remove the innermost pairs of braces one after the other."""
    pairs, rest = {}, re.sub(r"\\[^a-z]", "..", text)
    while match := re.search(r"\{[^{}]*\}", rest):
        pairs[match.start()] = match.end() - 1
        inside = re.sub("[{}]", ".", match[0])
        rest = rest[: match.start()] + inside + rest[match.end() :]
    if "{" in rest or "}" in rest:
        return text
    removed = set()
    escaped = re.sub(r"\\[^a-z]", "..", text)
    for start, end in pairs.items():
        if font := re.search(r"\\(text(bf|it)?|mathrm|emph)\s*$", escaped[:start]):
            removed |= {*range(font.start(), start + 1), end}
    return "".join(letter for at, letter in enumerate(text) if at not in removed)


@given(BRACES)
@budget(250)
def test_unwrap_equals_the_naive_implementation(text):
    assert unwrap(text) == naive_unwrap(text)


@given(SOUP)
def test_unwrap_returns_the_argument_of_a_command(text):
    balanced = text.count("{") == text.count("}") and "\\" not in text and closing(text, 0) is None
    if balanced:
        assert unwrap(f"\\text{{{text}}}") == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{Paris}", "Paris"),
        (r"\boxed{Rome} or \boxed{Paris}", "Paris"),
        (r"\boxed{\text{Paris}}", r"\text{Paris}"),
        (r"\boxed{a{b{c}d}e}", "a{b{c}d}e"),
        (r"\boxed{Paris} and \boxed{Ro", "Paris"),
        (r"\boxed{Ro \boxed{Paris}", "Paris"),
        (r"\boxed{a \boxed{Paris} b}", "Paris"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{Rome} \boxed {Paris}", "Paris"),
        (r"}}\boxed{Paris}", "Paris"),
        (r"\boxed{}", ""),
        (r"\boxed{Paris", None),
        ("boxed{Paris}", None),
        (r"\boxed Paris", None),
        ("", None),
    ],
)
def test_last_box(text, expected):
    assert last_box(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\text{Paris}", "Paris"),
        (r" \textbf{New York} ", " New York "),
        (r"\mathrm{a{b}c}", "a{b}c"),
        (r"\text{a} and \text{b}", "a and b"),
        (r"\textbf{\text{Paris}}", "Paris"),
        (r"330\mathrm{ m}", "330 m"),
        (r"\text{N}_{2}\text{O}", "N_{2}O"),
        (r"\textcolor{red}{a}", r"\textcolor{red}{a}"),
        (r"\\text{a}", r"\\text{a}"),  # a line break and the word "text"
        (r"\text{a\}}", r"a\}"),
        (r"\text{a}}", r"\text{a}}"),
        (r"\text{a\}", r"\text{a\}"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
        ("Paris", "Paris"),
    ],
)
def test_unwrap(text, expected):
    assert unwrap(text) == expected
