"""Citations by address: forms, normalization and linear time."""

from __future__ import annotations

import pytest
from growth import assert_linear, sizes

from rag_rewards.text.url_citations import (
    before_references,
    before_source_list,
    cited_urls,
    without_dumps,
    without_url_citations,
)


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        (
            "[1](https://en.wikipedia.org/wiki/Paris_(mythology))",
            ("en.wikipedia.org/wiki/Paris_(mythology)",),
        ),
        ("[1](https://a.org/Caf%C3%A9)", ("a.org/Café",)),
        ("[^2](b) [#3](c) [ 4 ]( d )", ("b", "c", "d")),
        ("[x](a) [1] (a) [1](a b)", ()),
        ("[1](a", ()),
    ],
)
def test_forms(text, urls):
    assert cited_urls(text) == urls


@pytest.mark.parametrize("heading", ["References", "## References", "**References**", "REFERENCE:"])
def test_headings(heading):
    assert before_references(f"a\n{heading}\nb") == "a\n"
    assert before_references(f"a {heading}\nb") == f"a {heading}\nb"


@pytest.mark.parametrize(
    "piece",
    [
        "[1](",
        "[1](a(",
        "[1](a",
        "[1](((",
        "references \n x",
        "[[1]](a)",
        "x [1](a) ",
        "[1](a) and ",
        "a\n\n[1](a)[2](b)\n",
        "Sources:\n",
    ],
)
@sizes(1_000_000)
def test_hostile_texts_take_linear_time(largest, piece):
    def run(size):
        text = piece * (size // len(piece))
        cited_urls(text)
        without_url_citations(text)
        before_references(text + " " * size)
        before_source_list(text)
        without_dumps(text)
        without_dumps("a " * (size // 4) + "\n" + text)

    assert_linear(run, largest)
