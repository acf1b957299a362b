"""Paths of options for the processes of a cluster, whose current folder is another one."""

from __future__ import annotations

import pytest

from rag_rewards.loading import RecipeSpec
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.scoring.ray_cluster import absolute_models, absolute_recipe


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Make a folder the current one. It contains files with the names of other options' values."""
    monkeypatch.chdir(tmp_path)
    for name in ("transformers", "auto", "cpu", "m", "hardened", "models", "encoder"):
        (tmp_path / name).mkdir()
    (tmp_path / "prompt.txt").write_text("{documents} {question}")
    return tmp_path


def test_only_options_with_paths_become_absolute(folder):
    options = {"device": "cpu", "document_separator": ".", "judge": "http://host/v1"}
    models = ModelOptions(model="models", judge_model="m", **options)
    assert absolute_models(models) == ModelOptions(
        model=str(folder / "models"), judge_model="m", **options
    )


def test_urls_and_names_on_the_hub_remain_unchanged(folder):
    (folder / "http:" / "host").mkdir(parents=True)
    models = ModelOptions(nli="http://host", nli_tokenizer="owner/tokens", similarity="owner/name")
    assert absolute_models(models) == models
    models = ModelOptions(nli="http://host", nli_tokenizer="encoder", similarity="encoder")
    encoder = str(folder / "encoder")
    assert absolute_models(models) == ModelOptions(
        nli="http://host", nli_tokenizer=encoder, similarity=encoder
    )


def test_a_file_is_absolute_also_before_it_exists(folder):
    judge = {"judge": "http://host/v1", "judge_model": "m"}
    models = ModelOptions(
        **judge, judge_cache="new.db", model="owner/name", prompt_template="prompt.txt"
    )
    assert absolute_models(models) == ModelOptions(
        **judge,
        judge_cache=str(folder / "new.db"),
        model="owner/name",
        prompt_template=str(folder / "prompt.txt"),
    )
    assert absolute_models(ModelOptions()) == ModelOptions()


def test_files_of_recipes_and_stages_become_absolute(folder):
    file, name = RecipeSpec(recipe="my.py:reward", hardened=True), RecipeSpec(recipe="pkg:reward")
    assert absolute_recipe(file) == RecipeSpec(recipe=f"{folder}/my.py:reward", hardened=True)
    assert absolute_recipe(name) == name
    assert absolute_recipe(RecipeSpec(recipe="arena")) == RecipeSpec(recipe="arena")
    stages = [{"recipe": "own/my.py:first", "until_step": 2}, {"recipe": "arena"}]
    absolute = [{"recipe": f"{folder}/own/my.py:first", "until_step": 2}, {"recipe": "arena"}]
    assert absolute_recipe(RecipeSpec(stages=stages)) == RecipeSpec(stages=absolute)
