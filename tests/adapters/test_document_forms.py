"""How documents stand in prompts, said by name to what trainers call."""

from __future__ import annotations

import pytest
from rag_rewards_adapters.trl import RagReward
from rag_rewards_adapters.verl_rows import grader_of

from rag_rewards.errors import UsageError
from rag_rewards.grading import Grader
from rag_rewards.models import Models
from rag_rewards.prompts import GROUNDED, Prompt
from rag_rewards.testing import TablePolicy

NAMED = {
    "model": "http://localhost:1",
    "backend": "vllm",
    "document_form": "{text} [{label}]",
    "document_separator": " ",
}


def graders() -> dict[str, Grader]:
    models = Models(policy=TablePolicy())
    return {
        "trl": RagReward("ctrl-rag", models=models, **NAMED).grader,
        "verl": grader_of({"recipe": "ctrl-rag", **NAMED}, models=models),
    }


@pytest.mark.parametrize("trainer", ["trl", "verl"])
def test_the_form_reaches_the_prompt(trainer: str) -> None:
    form = "{text} [{label}]"
    shown = graders()[trainer].prompt
    assert shown == Prompt(GROUNDED.message, document=form, untitled=form, separator=" ")


@pytest.mark.parametrize("make", [lambda given: RagReward("ctrl-rag", **given), grader_of])
def test_it_goes_with_a_model_that_is_named(make) -> None:
    with pytest.raises(UsageError, match="give --model"):
        make({"document_form": "{text}"} | ({"recipe": "ctrl-rag"} if make is grader_of else {}))
