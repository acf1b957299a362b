"""Sections against an implementation that reads one character at a time."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.sections import SectionStyle, Tags, cut
from rag_rewards.text.thinking import without_thinking

NAMES = [("answer",), ("think", "answer"), ("relevance", "analysis", "answer"), ("a", "ab")]
STYLES = [
    SectionStyle(*style)
    for style in itertools.product(("exact", "unclosed", "lenient"), ("first", "missing"))
]
PIECES = [
    *("<think>", "</think>", "<answer>", "</answer>", "<a>", "</a>", "<ab>", "</ab>"),
    *("<relevance>", "</relevance>", "<analysis>", "</analysis>", "<ANSWER>", "</Answer>"),
    *("<Think>", "</THINK>", "<", ">", "</", "</ans", "<answer >", "< answer>", "<answer/>"),
    *("x", " ", "\n", "Paris", "<<answer>>", "\u2028", "answer", "</answer"),
]
SOUP = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=30)


def no_thinking(text, flags=0):
    return re.sub(r"<think>.*?(?:</think>|\Z)", "", text, flags=re.DOTALL | flags)


def all_tags(text, names, fold):
    """Return (tag, start, end) of every tag in the text."""
    result = []
    for at in range(len(text)):
        for tag in [f"<{mark}{name}>" for name in {*names, "think"} for mark in ("", "/")]:
            here = text[at : at + len(tag)]
            if here == tag or (fold and here.lower() == tag):
                result.append((tag, at, at + len(tag)))
    return result


def naive(text, names, style):
    """Return (content, repeated, exact, counts) according to the definition."""
    tags = all_tags(text, names, style.tags == "lenient")
    outside, inside = [], False
    for tag in tags:
        if not inside or tag[0] == "</think>":
            outside.append(tag)
        inside = tag[0] != "</think>" if inside else tag[0] == "<think>"
    content, repeated, torn = {}, set(), []
    for name in {*names, "think"}:
        opening = [tag for tag in outside if tag[0] == f"<{name}>"]
        if len(opening) > 1:
            repeated.add(name)
        if not opening:
            continue
        begin = opening[0][2]
        ends = [at for tag, at, _ in outside if tag == f"</{name}>" and at >= begin]
        if ends:
            content[name] = text[begin : ends[0]]
        else:
            torn.append((begin, name))
    if style.tags != "exact" and torn and not inside:
        begin, name = max(torn)
        closing, end = f"</{name}>", len(text)
        for n in range(1, len(closing)):
            tail = text[len(text) - n :]
            if (tail.lower() if style.tags == "lenient" else tail) == closing[:n]:
                end = len(text) - n
        content[name] = text[begin:end]
        tags.append((closing, end, len(text)))
    all_of_text = tags
    flags = re.IGNORECASE if style.tags == "lenient" else 0
    content = {n: c if n == "think" else no_thinking(c, flags) for n, c in content.items()}
    wanted = [tag for name in names for tag in (f"<{name}>", f"</{name}>")]
    between, at = "", 0
    opens = [tag for tag, _, _ in tags[:2]] == ["<think>", "</think>"] and "think" not in names
    if opens and not (text[: tags[0][1]] + text[tags[0][2] : tags[1][1]]).strip():
        tags, at = tags[2:], tags[1][2]  # empty thinking before the sections
    for i in range(0, len(tags) - 1, 2):
        between += text[at : tags[i][1]]
        at = tags[i + 1][2]
    exact = [tag for tag, _, _ in tags] == wanted and not (between + text[at:]).strip()
    if style.repeated == "missing":
        content = {name: text for name, text in content.items() if name not in repeated}
    counts = {}
    for tag, _, _ in all_of_text:
        counts[tag] = counts.get(tag, 0) + 1
    return content, repeated, exact, counts


@given(SOUP, st.sampled_from(NAMES), st.sampled_from(STYLES))
@budget(500)
def test_cut_equals_the_naive_implementation(text, names, style):
    result = cut(text, Tags(names, style))
    content, repeated, exact, counts = naive(text, names, style)
    assert result.content == content
    assert result.repeated == repeated
    assert result.exact == exact
    assert result.counts == counts


FILL = st.sampled_from(["", "x", " ", "\n", "\x1c", "<", "y > z"])


@given(st.data(), st.sampled_from(NAMES), st.sampled_from(STYLES))
@budget(250)
def test_nearly_well_formed_text_equals_the_naive_implementation(data, names, style):
    """The same for texts that are nearly well-formed, which random text seldom is."""
    parts = [data.draw(FILL)]
    for name in names:
        parts += [f"<{name}>", data.draw(FILL), f"</{name}>", data.draw(FILL)]
    if data.draw(st.booleans()):
        parts = ["<think>", "t", "</think>", *parts]
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(parts) - 1))
        parts[at] = data.draw(st.sampled_from([*PIECES, ""]))
    text = "".join(parts)
    result = cut(text, Tags(names, style))
    assert (result.content, result.repeated, result.exact, result.counts) == naive(
        text, names, style
    )


@given(SOUP)
@budget(250)
def test_without_thinking_equals_the_naive_implementation(text):
    assert without_thinking(text) == no_thinking(text, re.IGNORECASE)


# --- values ------------------------------------------------------------------------------------

ANSWER = Tags(("answer",))


def read(text, names=("answer",), **style):
    return cut(text, Tags(names, SectionStyle(**style))).content.get("answer")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer>Paris</answer>", "Paris"),
        ("so <answer>Paris</answer> <answer>Rome</answer>", "Paris"),
        ("<think><answer>Rome</answer></think><answer>Paris</answer>", "Paris"),
        ("<think><answer>Paris</answer>", None),
        ("<think>a</think><think><answer>Paris</answer></think>", None),
        ("<answer>Par<think>Rome</think>is</answer>", "Paris"),
        ("<answer>Paris<think></answer></think>!</answer>", "Paris!"),
        ("</answer><answer>Paris</answer>", "Paris"),
        ("<answer><answer>Paris</answer></answer>", "<answer>Paris"),
        ("<answer>Paris", None),
        ("<ANSWER>Paris</ANSWER>", None),
        ("<answer >Paris</answer >", None),
        ("<answers>Paris</answers>", None),
        ("a</think><answer>Paris</answer>", "Paris"),
        ("", None),
    ],
)
def test_first_complete_pair_outside_thinking(text, expected):
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "style", "expected"),
    [
        ("<ANSWER>Paris</Answer>", {"tags": "lenient"}, "Paris"),
        ("<THINK><answer>x</answer></THINK><answer>Paris</answer>", {"tags": "lenient"}, "Paris"),
        ("<answer>Par<THINK>Rome</THINK>is</answer>", {"tags": "lenient"}, "Paris"),
        ("<answer>Paris", {"tags": "unclosed"}, "Paris"),
        ("<answer>Paris</", {"tags": "unclosed"}, "Paris"),
        ("<answer>Paris</answer", {"tags": "unclosed"}, "Paris"),
        ("<ANSWER>Paris</ANSW", {"tags": "lenient"}, "Paris"),
        ("<answer>Par<think>Rome</think>is", {"tags": "unclosed"}, "Paris"),
        ("<think>x<answer>Paris", {"tags": "unclosed"}, None),
        ("<answer>Paris</answer><answer>Rome</answer>", {"repeated": "missing"}, None),
        ("<answer>Paris</answer><answer>Rome", {"repeated": "missing"}, None),
    ],
)
def test_styles(text, style, expected):
    assert read(text, **style) == expected
    if expected == "Paris":
        assert read(text) != expected  # the default setting gives another result


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("<think>a</think><answer>b</answer>", True),
        (" \n<think>a</think>\t<answer>b</answer>\u3000\n", True),
        ("<think></think><answer></answer>", True),
        ("<think>a < b</think><answer>c > d</answer>", True),
        ("<answer>b</answer><think>a</think>", False),
        ("<think>a</think>so<answer>b</answer>", False),
        ("<think>a</think><answer>b</answer>.", False),
        ("<think>a</think><answer>b</answer></answer>", False),
        ("<think>a<answer></think><answer>b</answer>", False),
        ("<think>a</think><think>a</think><answer>b</answer>", False),
        ("<think>a</think><answer>b", False),
        ("<think>a</think><answer>b<think></answer>", False),
        ("<answer>b</answer>", False),
    ],
)
def test_exact(text, exact):
    assert cut(text, Tags(("think", "answer"))).exact is exact


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("<think></think><a>b</a>", True),
        ("\n<think>\n\n</think>\n\n<a>b</a>\n", True),
        ("<think> </think><a>b < c</a>", True),
        ("<think>x</think><a>b</a>", False),
        ("<think></think><think></think><a>b</a>", False),
        ("x<think></think><a>b</a>", False),
        ("<a>b</a><think></think>", False),
        ("<think><a>b</a></think>", False),
        ("<think></think>x<a>b</a>", False),
    ],
)
def test_empty_thinking_before_the_sections(text, exact):
    """The chat templates of models that can also answer without thinking write it."""
    assert cut(text, Tags(("a",))).exact is exact


def test_names_are_not_patterns():
    assert cut("<a.b>x</a.b><aXb>y</aXb>", Tags(("a.b",))).content == {"a.b": "x"}
