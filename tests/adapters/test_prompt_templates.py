"""Prompts that were prepared with a template, in the adapters that leave documents out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rag_rewards_adapters.trl import RagReward
from rag_rewards_adapters.verl.config import RewardOptions

import rag_rewards as rr
from rag_rewards.evidence.protocols import Models
from rag_rewards.preparation.options import PrepareOptions
from rag_rewards.preparation.prepare import prepare
from rag_rewards.rows.columns import rollout_from_columns

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

FORM = {"document": "({label}) {text}", "untitled": "({label}) {text}", "separator": "\n"}
OWN_FORM = rr.Prompt("", **FORM)
"""The form of the documents, as a trainer's configuration names it."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    import tiny_models

    from rag_rewards.models.transformers import TransformersPolicy

    folder = tiny_models.save(tmp_path_factory.mktemp("model") / "qwen2")
    return Models(policy=TransformersPolicy.load(str(folder), dtype="float32"))


@pytest.fixture
def row(shared: Path, tmp_path: Path) -> dict[str, Any]:
    """A row for TRL, with the documents in a form that no recipe has."""
    template, out = tmp_path / "prompt.txt", tmp_path / "out.jsonl"
    template.write_text("Sources:\n{documents}\nReply to this: {question}", "utf-8")
    source = str(shared / "data/hotpotqa/distractor_row_trimmed.json")
    prepare(
        PrepareOptions(
            *("hotpotqa", source, str(out), "ctrl-rag", "trl"),
            prompt_template=str(template),
            document_form=FORM["document"],
            document_separator=FORM["separator"],
        )
    )
    prepared: dict[str, Any] = json.loads(out.read_bytes())
    return prepared


def test_trl_leaves_documents_out(models: Models, row: dict[str, Any]) -> None:
    responses = ["superhero roles as the Marvel Comics", "nothing"]
    columns = {name: [value] * 2 for name, value in row.items() if name != "prompt"}
    batch = {
        "prompts": [row["prompt"]] * 2,
        "completions": [[{"role": "assistant", "content": text}] for text in responses],
        "completion_ids": [models.policy.tokenizer.encode(text) for text in responses],
        **columns,
    }
    settings = {"threshold": None}
    reward = RagReward("ctrl-rag-clr", settings=settings, models=models, prompt=OWN_FORM)
    values = reward(**batch)
    assert None not in values
    assert values[0] != values[1]
    with pytest.raises(rr.DataError, match="document 2 cannot be left out"):
        RagReward("ctrl-rag-clr", settings=settings, models=models)(**batch)


def test_verl_leaves_documents_out(
    models: Models, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "own_prompts", sys.modules[__name__])
    options = {"recipe": "ctrl-rag-clr", "prompt": "own_prompts:OWN_FORM"}
    scorer = RewardOptions.of(options).scorer(models)
    prompt = row.pop("prompt")
    rollout = rollout_from_columns(row, response="superhero roles", prompt=prompt)
    [informed] = scorer.gather([rollout])
    assert isinstance(informed, rr.Rollout), informed
    assert set(informed.logprobs.without) == set(row["supporting"])
