"""Thinking in the tags of different models: it belongs neither to the answer nor to a section."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.response import read_response
from rag_rewards.text.sections import Tags, _cut_any, _cut_well_formed, _tags_in, cut
from rag_rewards.text.thinking import replace_thinking, without_thinking

ANSWER = Tags(("answer",))
THOUGHTS = (
    "<think>{}</think>",
    "<thinking>{}</thinking>",
    "<THINKING>{}</THINKING>",
    "<antThinking>{}</antThinking>",
    "< thinking >{}</ thinking >",
    '<thinking type="long">{}</thinking>',
    "<thought>{}</thought>",
    "<thoughts>{}</thoughts>",
    "<reasoning>{}</reasoning>",
    "<reflection>{}</reflection>",
    "<scratchpad>{}</scratchpad>",
    "<inner_monologue>{}</inner_monologue>",
    "<chain_of_thought>{}</chain_of_thought>",
    "<thinking_process>{}</thinking_process>",
    "<cot>{}</cot>",
    "[THINK]{}[/THINK]",
    "[thinking]{}[/thinking]",
    "◁think▷{}◁/think▷",
    "<seed:think>{}</seed:think>",
    "<|thinking|>{}<|/thinking|>",
    "<|begin_of_thought|>{}<|end_of_thought|>",
    "<|START_THINKING|>{}<|END_THINKING|>",
    "<|channel|>analysis<|message|>{}<|end|>",
    "<|channel|>analysis<|message|>{}<|channel|>final<|message|>",
)


@pytest.mark.parametrize("form", THOUGHTS)
def test_thinking_is_not_visible(form: str) -> None:
    assert without_thinking(f"So {form.format('Rome [1]')} Paris [2].") == "So  Paris [2]."
    two = form.format("Rome") + "Paris" + form.format("Oslo")
    assert without_thinking(two) == "Paris"
    opening = form.partition("{}")[0]
    assert without_thinking(f"Paris {opening} Rome [1]") == "Paris "
    assert read_response(form.format("Rome") + "Paris").visible == "Paris"


@pytest.mark.parametrize("form", THOUGHTS)
def test_a_section_inside_thinking_is_not_read(form: str) -> None:
    thought = form.format("<answer>Rome</answer>")
    assert cut(f"{thought}<answer>Paris</answer>", ANSWER).content["answer"] == "Paris"
    assert "answer" not in cut(thought, ANSWER).content
    inside = cut(f"<answer>{form.format('Rome')}Paris</answer>", ANSWER)
    assert inside.content["answer"] == "Paris"


@pytest.mark.parametrize("form", THOUGHTS[1:])
def test_other_tags_are_not_part_of_the_format(form: str) -> None:
    tags = Tags(("think", "answer"))
    assert not cut(f"{form.format('x')}<answer>Paris</answer>", tags).exact
    assert cut(f"<think>{form.format('x')}</think><answer>Paris</answer>", tags).exact
    opening = form.partition("{}")[0]
    unclosed = cut(f"<think>{opening}</think><answer>Paris</answer>", tags)
    assert (unclosed.exact, unclosed.content["answer"]) == (True, "Paris")


def test_the_thinking_section_keeps_its_text() -> None:
    text = "<think>a <thinking>b</thinking></think><answer>Paris</answer>"
    assert cut(text, Tags(("think", "answer"))).content["think"] == "a <thinking>b</thinking>"


def test_a_section_of_the_recipe_is_not_thinking() -> None:
    tags = Tags(("reasoning", "answer"))
    found = cut("<reasoning>Rome</reasoning><answer>Paris</answer>", tags)
    assert (found.content, found.exact) == ({"reasoning": "Rome", "answer": "Paris"}, True)


@pytest.mark.parametrize(
    "text",
    [
        "He is [thought to be] French.",
        "The <b>thinking</b> man",
        "Rethinking [1] and [2]",
        "a < thinking and b > c",
        "[think",
        "[reasons]",
        "Paris </thinking>",
        "Paris [/THINK]",
    ],
)
def test_text_that_only_resembles_a_tag_stays(text: str) -> None:
    assert without_thinking(text) == text


PIECES = st.lists(
    st.sampled_from(["<think>", "</think>", "[THINK]", "[/THINK]", "<answer>", "a", " ", "<", "◁"])
)


@budget(300)
@given(PIECES)
def test_the_usual_response_is_read_as_any_other(pieces: list[str]) -> None:
    text = "<think>" + "".join(pieces)
    assert without_thinking(text) == replace_thinking(text, "")


@budget(300)
@given(PIECES, st.sampled_from([("answer",), ("think", "answer"), ("answer", "answer")]))
def test_a_well_formed_response_is_cut_as_any_other(pieces: list[str], names) -> None:
    text = "".join(pieces) + "<think>b</think> <answer>c</answer>" + "".join(pieces[:1])
    tags = Tags(names)
    quick = _cut_well_formed(text, text.split("<"), tags)
    if quick is not None:
        slow = _cut_any(text, tags, _tags_in(text.split("<"), tags))
        assert (quick.content, quick.exact, quick.repeated) == (
            {name: slow.content[name] for name in quick.content},
            slow.exact,
            slow.repeated,
        )
