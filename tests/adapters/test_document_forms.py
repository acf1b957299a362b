"""The form of the documents in prompts, as an option of the adapters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rag_rewards_adapters.trl import RagReward
from rag_rewards_adapters.verl.config import RewardOptions

from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.prompts import GROUNDED
from rag_rewards.scorer import Scorer
from rag_rewards.testing import TablePolicy

NAMED = {
    "model": "http://localhost:1",
    "backend": "vllm",
    "document_form": "{text} [{label}]",
    "document_separator": " ",
}


def scorers() -> dict[str, Scorer]:
    models = Models(policy=TablePolicy())
    return {
        "trl": RagReward("ctrl-rag", models=models, **NAMED).scorer,
        "verl": RewardOptions.of({"recipe": "ctrl-rag", **NAMED}).scorer(models),
    }


@pytest.mark.parametrize("trainer", ["trl", "verl"])
def test_the_document_form_is_part_of_the_prompt(trainer: str) -> None:
    form = "{text} [{label}]"
    prompt = scorers()[trainer].prompt
    assert prompt == replace(GROUNDED, document=form, untitled=form, separator=" ")


@pytest.mark.parametrize("make", [lambda options: RagReward(**options), RewardOptions.of])
def test_the_document_form_requires_a_model(make) -> None:
    with pytest.raises(UsageError, match="set model"):
        make({"recipe": "ctrl-rag", "document_form": "{text}"})
