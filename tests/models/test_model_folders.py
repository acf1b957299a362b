"""Folders of models that the loaders of this process reject, without a request to the hub."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")

import tiny_models
from tiny_text_models import save_classifier, save_encoder

from rag_rewards import UsageError
from rag_rewards.models.nli import load_entailment
from rag_rewards.models.similarity import SentenceSimilarity
from rag_rewards.models.transformers import TransformersPolicy

LOADERS = {
    "policy": TransformersPolicy.load,
    "entailment": load_entailment,
    "similarity": SentenceSimilarity,
}


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    """A request to the hub fails the test."""

    def calls(*arguments, **options):
        pytest.fail(f"requested from the hub: {arguments}")

    monkeypatch.setattr("huggingface_hub.snapshot_download", calls)


@pytest.fixture(params=LOADERS)
def kind(request):
    return request.param


@pytest.fixture
def load(kind):
    return lambda model: LOADERS[kind](model, device="cpu")


@pytest.fixture
def folder(kind, tmp_path):
    """A new folder of a model of the kind."""
    path = tmp_path / "model"
    if kind == "policy":
        tiny_models.save(path)
    elif kind == "entailment":
        path.mkdir()
        save_classifier(path)
    else:
        (tmp_path / "base").mkdir()
        save_encoder(tmp_path / "base", path)
    return path


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("model.safetensors", r"model has no weights: none of \*\.safetensors, pytorch_model"),
        ("tokenizer.json", r"model has no tokenizer: none of tokenizer\.json, "),
        ("config.json", r"model is not the folder of a model: it has no config\.json"),
    ],
)
def test_an_incomplete_folder_is_rejected(file, message, folder, load):
    (folder / file).unlink()
    with pytest.raises(UsageError, match=message):
        load(str(folder))


@pytest.mark.parametrize("shape", ["{}/nothing", "./nothing", "~/no-such-folder", "a/b/c", "Path"])
def test_a_path_is_never_requested_from_the_hub(shape, load, tmp_path, monkeypatch):
    model = Path("owner/name") if shape == "Path" else shape.format(tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        load(model)
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        load("models/nli")


def test_a_file_is_not_a_folder(folder, load):
    with pytest.raises(UsageError, match=r"config\.json is a file"):
        load(folder / "config.json")
