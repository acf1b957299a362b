"""Citation markers against a hand-written parser."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from growth import assert_linear, sizes
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import Document, Rollout, recipe
from rag_rewards.text.citations import (
    cited_labels,
    compiled,
    labels_in,
    markers,
    split_valid,
    strip_markers,
)
from rag_rewards.text.statements import statements

DEFAULT = compiled()
PIECES = [
    *("[1]", "[2]", "[", "]", "［", "］", "1", "0", "12", "1999", ",", "，", " ", "doc", "Doc."),
    *("document ", "[1, 3]", "[Doc. 2]", "DOC 4", "x", ".", "[a]", "[[1]]", "[1,]", "[-1]", "²"),
    *("[1 2]", "[1][2]", "[0]", "[01]", "[1.5]", "٣"),
]
SOUP = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=20)


def spaces(text, at):
    end = at
    while end < len(text) and text[end].isspace() and end - at < 8:
        end += 1
    return end


def one_name(text, at):
    """Return (number, end) for "3", "doc 3" or "Document. 3", else None."""
    for word in ("document", "doc"):
        if text[at : at + len(word)].lower() == word:
            at += len(word)
            at += text[at : at + 1] == "."
            at = spaces(text, at)
            break
    end = at
    while end < len(text) and text[end].isdecimal():
        end += 1
    return (text[at:end], end) if 0 < end - at <= 9 else None


def parse(text, at):
    """Return (labels, end) of a marker that begins at `at`, else None."""
    if text[at] not in "[［":
        return None
    labels, at = [], at + 1
    while True:
        name = one_name(text, spaces(text, at))
        if name is None:
            return None
        labels.append(str(int(name[0])))
        at = spaces(text, name[1])
        if text[at : at + 1] in ("]", "］"):
            return tuple(labels), at + 1
        if text[at : at + 1] not in (",", "，"):
            return None
        at += 1


def naive(text):
    result, at = [], 0
    while at < len(text):
        here = parse(text, at)
        if here:
            result.append((at, here[1], here[0]))
            at = here[1]
        else:
            at += 1
    return result


@given(SOUP)
@budget(400)
def test_markers_equal_the_naive_implementation(text):
    assert [(m.start, m.end, m.labels) for m in markers(text, DEFAULT)] == naive(text)


@given(SOUP)
@budget(300)
def test_labels_and_bare_text_follow_from_the_markers(text):
    expected = []
    for _, _, labels in naive(text):
        expected += [label for label in labels if label not in expected]
    assert list(cited_labels(text, DEFAULT)) == expected
    bare, at = "", 0
    for start, end, _ in naive(text):
        bare += text[at:start].rstrip()
        at = end
    assert strip_markers(text, DEFAULT) == (bare + text[at:]).strip()


@given(SOUP, st.sets(st.sampled_from(["1", "2", "3", "12"])))
@budget(300)
def test_invalid_citations_are_reported_and_never_mapped(text, existing):
    labels = cited_labels(text, DEFAULT)
    valid, invalid = split_valid(labels, existing)
    assert [label for label in labels if label in valid or label in invalid] == list(labels)
    assert set(valid) <= existing
    assert existing.isdisjoint(invalid)
    # Each label is a number in the text, in any digits.
    written = {int(number) for number in "".join(c if c.isdecimal() else " " for c in text).split()}
    assert {int(label) for label in labels} <= written


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("[1]", ["1"]),
        ("[1][2]", ["1", "2"]),
        ("[1, 3]", ["1", "3"]),
        ("[1,3 , 5]", ["1", "3", "5"]),
        ("[doc 2]", ["2"]),
        ("[Doc. 2]", ["2"]),
        ("[DOCUMENT 2, doc 3]", ["2", "3"]),
        ("［1］", ["1"]),
        ("［１］", ["1"]),
        ("［1，2］", ["1", "2"]),
        ("[ 1 ]", ["1"]),
        ("[01]", ["1"]),
        ("[0]", ["0"]),
        ("[1999]", ["1999"]),
        ("[[1]]", ["1"]),
        ("[1-3]", ["1", "2", "3"]),
        ("[2–3]", ["2", "3"]),
        ("[1-99]", ["1", "99"]),
        ("[3-1]", ["3", "1"]),
        ("【3】", ["3"]),
        ("【3†source】", ["3"]),
        ("【3†L1-L4】", ["3"]),
        ("[2†source]", ["2"]),
        ("(Document 3)", ["3"]),
        ("(Documents 2 and 3)", ["2", "3"]),
        ("(see document 3)", ["3"]),
        ("(Source: Document 2)", ["2"]),
        ("[citation:3]", ["3"]),
        ("[citation: 3][citation: 4]", ["3", "4"]),
        ("[Source 3]", ["3"]),
        ("[passage 3; passage 4]", ["3", "4"]),
        ("[ref. 3]", ["3"]),
        ("[^3]", ["3"]),
        ("[#3]", ["3"]),
        ("[D3]", ["3"]),
        ("[a] [1.5] [-1] [] [1 2] (1) 1] [1", []),
        ("(1990) (3) (documents) (document) Document 3 (12 documents)", []),
        ("[see] [source] [citation] [1/2] [x1]", []),
        ("[1234567890]", []),
    ],
)
def test_markers_and_other_brackets(text, labels):
    assert list(cited_labels(text, DEFAULT)) == labels


def test_the_pattern_is_a_setting():
    pattern = compiled(r"\(source (\d+)\)")
    assert cited_labels("A (Source 2). B [1].", pattern) == ("2",)
    assert strip_markers("A (Source 2). B [1].", pattern) == "A. B [1]."


def test_years_and_zero_are_invalid():
    assert split_valid(("1", "0", "1999", "3"), {"1", "2"}) == (("1",), ("0", "1999", "3"))


# The released code deletes " |" and every "]" as well; the specification removes markers only.
REMOVAL_DEVIATIONS = {"A [12] | B": "A | B", "list [a]": "list [a]", "text ]": "text ]"}


def test_upstream_removal(shared):
    path = shared / "parity" / "generated" / "remove_citations.json"
    rows = json.loads(path.read_text("utf-8"))
    assert REMOVAL_DEVIATIONS.keys() < {row["in"] for row in rows}
    for row in rows:
        ours = strip_markers(row["in"], DEFAULT)
        assert ours == REMOVAL_DEVIATIONS.get(row["in"], row["out"])
        assert (ours != row["out"]) == (row["in"] in REMOVAL_DEVIATIONS)


@pytest.mark.parametrize("item", ["1†,", "1†and 1 and ", "1†a&", "1†and#1and#1†"])
def test_an_unclosed_marker_takes_linear_time(item: str) -> None:
    assert markers(f"[{item * 99}", DEFAULT) == []


def test_a_range_has_at_most_as_many_numbers_as_there_are_documents():
    text = "So [1-50] and [3-5]."
    assert cited_labels(text, compiled(), 3) == ("1", "2", "3", "50", "4", "5")
    assert cited_labels(text, compiled()) == tuple(map(str, range(1, 51)))
    assert labels_in("101-103", 3) == ("101", "102", "103")
    (statement,) = statements("It is so [1-50][1-50].", compiled(), documents=2)
    assert statement.cited == ("1", "2", "50")


@pytest.mark.parametrize("unit", ["[1-50]", "a. [1-50] ", "[1-50,2-50,3-50]"])
@pytest.mark.parametrize("name", ["rag-total", "ground-grpo", "arena"])
@sizes(1 << 18)
def test_the_time_of_long_ranges_grows_linearly(largest, name, unit):
    settings = {"citation.judge_by": "gold"} if name == "ground-grpo" else {}
    reward = recipe(name, settings, hardened=True)

    def score(size):
        text = unit * (size // len(unit))
        response = f"<think>a</think><answer>Paris {text}</answer>"
        if name == "arena":
            response = f"<relevance>{text}</relevance><answer>Paris</answer>"
        documents = tuple(Document(text=f"text {i}") for i in range(5))
        row = Rollout(
            response=response, question="q", answers="Paris", answerable=True, supporting=(1,),
            documents=documents,
        )  # fmt: skip
        reward([row])

    assert_linear(score, largest)


def test_the_labels_of_long_markers_leave_memory():
    """Each marker has 99 ranges of 50 numbers, which are 5,000 labels."""
    contents = [", ".join(f"{i}-{i + 49}" for i in range(n, n + 99)) for n in range(1, 41)]
    tracemalloc.start()
    try:
        for content in contents:
            assert len(labels_in(content)) == 99 * 50
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 1 << 20
