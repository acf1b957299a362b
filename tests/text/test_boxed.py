r"""\boxed{…} against an implementation that counts braces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.boxed import first_box, last_box, unwrap

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
@budget(1500)
def test_last_box_equals_the_naive_implementation(text):
    assert last_box(text) == naive_last(text)


@given(SOUP)
@budget(500)
def test_first_box_is_as_in_the_authors_code(text):
    start = text.find("\\boxed{")
    end = text.find("}", start)
    expected = None if start < 0 or end < 0 else text[start + 7 : end]
    assert first_box(text) == expected


@given(SOUP)
def test_unwrap_takes_one_whole_command_or_nothing(text):
    inner = unwrap(text)
    assert inner == text or text.strip().startswith("\\")
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
        (r" \textbf{New York} ", "New York"),
        (r"\mathrm{a{b}c}", "a{b}c"),
        (r"\text{a} and \text{b}", r"\text{a} and \text{b}"),
        (r"\text{a}}", r"\text{a}}"),
        (r"\text{a\}", r"\text{a\}"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
        ("Paris", "Paris"),
    ],
)
def test_unwrap(text, expected):
    assert unwrap(text) == expected
