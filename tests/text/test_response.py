"""End-of-sequence text, and the parsed parts of a response."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import Rollout
from rag_rewards.text.response import END_OF_SEQUENCE, read_response, strip_end_of_sequence
from rag_rewards.text.sections import SectionStyle, Tags

TOKENS = sorted(END_OF_SEQUENCE)
PIECES = [*TOKENS, "x", " ", "\n", "\u3000", "<", ">", "]", "[", "|>", "</answer>", "<answer>"]
SOUP = st.lists(st.sampled_from(PIECES), max_size=10).map("".join) | st.text(max_size=20)


def naive(text):
    """Remove one token after another from the end, with the white space before each."""
    while True:
        for token in TOKENS:
            if text.rstrip().endswith(token):
                text = text.rstrip().removesuffix(token)
                break
        else:
            return text


@given(SOUP)
@budget(250)
def test_strip_equals_the_naive_implementation(text):
    once = strip_end_of_sequence(text)
    assert once == naive(text)
    assert strip_end_of_sequence(once) == once


@pytest.mark.parametrize("token", TOKENS)
def test_tokens_are_removed_only_at_the_end(token):
    assert strip_end_of_sequence(f"Paris{token}") == "Paris"
    assert strip_end_of_sequence(f"Paris {token}\n{token} ") == "Paris "
    assert strip_end_of_sequence(f"{token}Paris") == f"{token}Paris"
    assert read_response(f"<answer>Paris</answer>{token}").cut(Tags(("answer",))).exact


def test_a_template_that_opens_the_thinking():
    rollout = Rollout(response="Rome?</think><answer>Paris</answer>", response_prefix="<think>")
    result = rollout.parsed.cut(Tags(("think", "answer")))
    assert result.content == {"think": "Rome?", "answer": "Paris"}
    assert result.exact
    assert rollout.parsed.visible == "<answer>Paris</answer>"
    bare = Rollout(response="Rome?</think><answer>Paris</answer>").parsed
    assert not bare.cut(Tags(("think", "answer"))).exact


def test_unclosed_thinking_of_the_template_is_not_an_answer():
    parsed = Rollout(response="<answer>Paris</answer>", response_prefix="<think>").parsed
    assert parsed.cut(Tags(("answer",))).content == {}
    assert parsed.visible == ""


def test_the_cached_cut_depends_on_the_tags():
    response = read_response("<ANSWER>The Paris*</ANSWER>")
    strict, loose = Tags(("answer",)), Tags(("answer",), SectionStyle("lenient"))
    for _ in range(2):
        assert response.cut(strict).content == {}
        assert response.cut(loose).content == {"answer": "The Paris*"}
        assert response.cut(Tags(("ANSWER",))).content == {"ANSWER": "The Paris*"}
    assert response.cut(strict) is response.cut(Tags(("answer",)))
    assert response.visible is response.visible
