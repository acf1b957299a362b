"""Format and tag count against slow implementations with regular expressions and str.count."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import Rollout
from rag_rewards.rewards import Format, TagCount, format_match, tag_count
from rag_rewards.text.sections import SectionStyle, Tags, cut

quick = budget(300)
TAGS = Tags(("think", "answer"))
PIECES = ["<think>", "</think>", "<answer>", "</answer>"]
RESPONSES = st.one_of(
    st.lists(st.sampled_from([*PIECES, " ", "x", "\n", "<", "<ANSWER>", "< think>"]), max_size=9),
    st.lists(st.sampled_from(["", " ", "x", "\n", "."]), min_size=5, max_size=5).map(
        lambda gaps: [part for pair in zip(gaps, [*PIECES, ""], strict=True) for part in pair]
    ),
).map("".join)


def naive_format(text: str, filled: bool) -> float:
    """Return the format of think and answer sections, with a regular expression."""
    pattern = r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*"
    match = re.fullmatch(pattern, text, re.DOTALL)
    if not match or any(text.count(tag) != 1 for tag in PIECES):
        return 0.0
    return 1.0 if match[2].strip() or not filled else 0.0


@quick
@given(RESPONSES, st.booleans())
def test_format_against_a_naive_implementation(text, filled):
    reward = Format(TAGS, ("answer",) if filled else ())
    assert reward([Rollout(response=text)])[0].value == naive_format(text, filled)
    assert format_match(cut(text, TAGS), TAGS, ("answer",) if filled else ()) == naive_format(
        text, filled
    )


@quick
@given(RESPONSES)
def test_tag_count_against_a_naive_implementation(text):
    expected = sum(text.count(tag) == 1 for tag in PIECES) / 4
    assert tag_count(cut(text, TAGS), TAGS) == expected
    assert TagCount(TAGS)([Rollout(response=text)])[0].value == expected


@quick
@given(RESPONSES)
def test_a_format_of_one_has_every_tag_once(text):
    if Format(TAGS).of(Rollout(response=text)):
        assert tag_count(cut(text, TAGS), TAGS) == 1.0


@pytest.mark.parametrize(
    ("text", "filled", "words", "expected"),
    [
        ("<think></think><answer></answer>", (), False, 1.0),
        ("<think></think><answer></answer>", ("answer",), False, 0.0),
        ("<think></think><answer>x</answer>", ("answer",), False, 1.0),
        ("<think></think><answer>x</answer>", ("think", "answer"), False, 0.0),
        ("<think>.</think><answer>.</answer>", ("think", "answer"), False, 1.0),
        ("<think>.</think><answer>.</answer>", ("think", "answer"), True, 0.0),
        ("<think>.</think><answer>7</answer>", ("answer",), True, 1.0),
        ("<think>.</think><answer>🍐</answer>", ("answer",), True, 1.0),
        ("<think>.</think><answer>• – [1]</answer>", ("answer",), True, 0.0),
        ("<answer>x</answer><think>y</think>", (), False, 0.0),
        ("<think>y</think> so <answer>x</answer>", (), False, 0.0),
        ("<think>y</think><answer>x</answer>!", (), False, 0.0),
        ("<think>y</think><answer>a</answer><answer>a</answer>", (), False, 0.0),
        ("<think>y<answer>a</answer></think><answer>x</answer>", (), False, 0.0),
        ("<think>y</think><ANSWER>x</ANSWER>", (), False, 0.0),
        ("", (), False, 0.0),
    ],
)
def test_formats(text, filled, words, expected):
    assert Format(TAGS, filled, words).of(Rollout(response=text)) == expected


def test_arenas_sections_in_order():
    tags = Tags(("relevance", "analysis", "answer"))
    good = "\n<relevance>[1]</relevance>\n<analysis>x < y</analysis> <answer>z</answer>\n"
    assert Format(tags).of(Rollout(response=good)) == 1.0
    assert Format(tags).of(Rollout(response=good + "bye")) == 0.0
    swapped = "<analysis>x</analysis><relevance>[1]</relevance><answer>z</answer>"
    assert Format(tags).of(Rollout(response=swapped)) == 0.0


def test_styles():
    loud = Tags(("think", "answer"), SectionStyle("lenient"))
    assert Format(loud).of(Rollout(response="<THINK>y</Think><ANSWER>x</answer>")) == 1.0
    torn = Tags(("think", "answer"), SectionStyle("unclosed"))
    assert Format(torn).of(Rollout(response="<think>y</think><answer>x")) == 1.0
    assert Format(torn).of(Rollout(response="<think>y</think><answer>x</ans")) == 1.0
    assert Format(torn).of(Rollout(response="<think>y")) == 0.0


def test_prefix_and_end_of_sequence_text_belong_to_the_template():
    rollout = Rollout(response="y</think><answer>x</answer><|im_end|>\n", response_prefix="<think>")
    assert Format(TAGS).of(rollout) == 1.0
    assert TagCount(TAGS)([rollout])[0].value == 1.0
