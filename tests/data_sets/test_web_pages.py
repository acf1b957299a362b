"""The text of web pages: blocks, broken markup, and pages that are made to be slow."""

from __future__ import annotations

import random
import sys
from itertools import cycle, islice

import pytest
from growth import assert_linear
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards.datasets.crag import LARGEST_PAGE, page_text
from rag_rewards.errors import MissingExtraError

pytest.importorskip("html_text")


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (
            "<title>T</title><style>p{}</style><p>a <b>b</b>, c<br>d &lt;e&gt;</p>",
            "T\n\na b, c\nd <e>",
        ),
        ("<script>if (a<b) {}</script>\n<div>f<!-- g --></div>h", "f\nh"),
        ("<table><tr><td>1<td>2<tr><td>3</table>", "1 2\n3"),
        ("</script>still here", "still here"),
        ("no markup", "no markup"),
        ('<?xml version="1.0" encoding="latin-1"?><p>ü', "ü"),
        ("\0", ""),
        ("", ""),
    ],
)
def test_text(page, text):
    assert page_text(page) == text


def test_text_in_deep_elements_is_lost():
    """The parser stops at the depth, and returns what it has read."""
    assert page_text("<p>a" + "<div>" * 100 + "b" + "</div>" * 100 + "<p>c") == "a\n\nb\n\nc"
    assert page_text("<p>a" + "<div>" * 10_000 + "b" + "</div>" * 10_000 + "<p>c") == "a"


def test_the_end_of_a_very_long_page_is_not_read():
    assert len(page_text("x " * LARGEST_PAGE)) == LARGEST_PAGE - 1


TAGS = (
    "a b p i div span table tr td ul li font script style svg math select form h1 template".split()
)
TOKENS = [f"<{tag}>" for tag in TAGS] + [f"</{tag}>" for tag in TAGS]
TOKENS += [
    "<",
    "</",
    "<!--",
    "-->",
    "<![CDATA[",
    "<?",
    "&",
    "&#x",
    "&lt;",
    '<a b="',
    "'",
    "x ",
    "\0",
]


@given(st.lists(st.sampled_from(TOKENS)))
def test_any_markup_has_a_text(tokens):
    assert isinstance(page_text("".join(tokens)), str)


MEGABYTE = 1_000_000
HOSTILE = {
    **{name: [name] for name in ("<div>", "<b>", "<p>", "<a>", "<table>", "<font>", "<form>")},
    **{
        name: [name] for name in ("<!--", "<![CDATA[", "</", "<a ", "<a b='", "<?", "<", "&", "&#x")
    },
    "paragraphs in bold": ["<p><b>"],
    "bold in paragraphs": ["<b><p>"],
    "links": ["<a href=x>y"],
    "cells": ["<table><tr><td>"],
    "text in tables": ["x<b>y<table>"],
    "attributes": [f" b{i}=c" for i in range(120_000)],
    "attributes of the body": [f"<body a{i}=b>" for i in range(70_000)],
    "scripts without an end": ["<script></"],
    "random": random.Random(0).choices(TOKENS, k=200_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_of_a_megabyte_takes_linear_time(name):
    def read(size):
        page = "".join(islice(cycle(HOSTILE[name]), size))[:size]
        page_text("<a" + page if name == "attributes" else page)

    assert_linear(read, MEGABYTE)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "html_text", None)
    with pytest.raises(MissingExtraError, match=r'html-text is not .*"rag-rewards\[html\]"'):
        page_text("<p>x")


def test_a_page_without_tags_needs_no_parser(monkeypatch):
    monkeypatch.setitem(sys.modules, "html_text", None)
    assert page_text("One &amp; two\n three") == "One & two three"
