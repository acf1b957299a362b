"""ARENA's naive baseline: think and answer tags, format + accuracy."""

from __future__ import annotations

import pytest

from rag_rewards import recipe
from rag_rewards.rollout import Rollout

# (response, format, accuracy, reward)
GOLDEN = [
    ("<think>t</think><answer>Paris</answer>", 1, 1, 2),
    ("<think></think>\n<answer> the paris. </answer>\n", 1, 1, 2),
    ("<think>t</think><answer>Rome</answer>", 1, 0, 1),
    ("<think>t</think><answer></answer>", 1, 0, 1),
    ("<answer>Paris</answer>", 0, 1, 1),
    ("<think>t</think> So: <answer>Paris</answer>", 0, 1, 1),
    ("<think><answer>Paris</answer></think>", 0, 0, 0),
    ("<think>t <answer>Paris</answer>", 0, 0, 0),  # never closed: no answer
    ("Paris", 0, 0, 0),
    ("", 0, 0, 0),
]


@pytest.mark.parametrize(("text", "format_", "accuracy", "reward"), GOLDEN)
def test_golden_rows(text, format_, accuracy, reward):
    result = recipe("naive-grpo")([Rollout(response=text, answers=["Paris", "Lutetia"])])[0]
    assert result.components == {"format": format_, "accuracy": accuracy}
    assert (result.value, result.correct) == (reward, accuracy)
    assert result.details["answer"] is None or isinstance(result.details["answer"], str)


def test_hardened():
    def value(text):
        rollout = Rollout(response=text, answers="Paris")
        return recipe("naive-grpo", hardened=True)([rollout])[0].value

    assert value("<think></think><answer>Paris</answer>") == 2  # the thinking may be empty
    assert value("<think>t</think><answer>.</answer>") == 0
    assert value("<think>t</think><answer>Paris</answer><answer>Rome</answer>") == 0
