"""Training sets of LEAR: gold answers for the generators."""

from __future__ import annotations

import json

import pytest

from rag_rewards.recipes import definition_of
from rag_rewards.selection.questions import Question, read_question_row
from rag_rewards.selection.training_sets import ChatMaker

PROMPTS = definition_of("lear").prompts


def question(prompt=None):
    row = {
        "group": "g",
        "question": "Which river?",
        "documents": [{"text": "Paris lies on the Seine."}],
        "answers": ["Seine", "the Seine"],
        "prompt": prompt,
    }
    line = json.dumps(row).encode()
    return Question((1, line), read_question_row(line))


def chat(name):
    """Return the chat with a prompt of the recipe."""
    return PROMPTS[name].messages(question().row)


@pytest.mark.parametrize(
    ("prompt", "completion"),
    [
        (chat("qa"), "Seine"),
        (chat("closed-book"), "Seine"),
        (chat("default"), "<answer>Seine</answer>"),
        (chat("direct"), "<answer>Seine</answer>"),
        ([{"role": "user", "content": "own words"}], "<answer>Seine</answer>"),
    ],
)
def test_gold_answers_for_the_generators(prompt, completion):
    row = ChatMaker("sft", style="gold", recipe="lear")(question(prompt))
    assert row["prompt"] == prompt
    assert row["completion"][0]["content"] == completion
