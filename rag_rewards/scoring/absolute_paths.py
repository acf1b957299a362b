"""Absolute paths for processes on Ray, each of which has its own current folder."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import msgspec

from rag_rewards.files.storage import is_remote, local_path
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.addresses import is_url
from rag_rewards.models.model_options import ModelOptions

MODEL_FOLDERS = ("model", "adapter", "tokenizer", "nli", "nli_tokenizer", "similarity")
"""The options of models that are a folder, the URL of a server, or a name on the hub."""
MODEL_FILES = ("judge_cache", "prompt_template")
"""The options of models that are the name of a file."""


def absolute_path(path: str) -> str:
    """Return a local path as an absolute path, and the URL of an object store unchanged."""
    return path if is_remote(path) else os.path.abspath(local_path(path))


def absolute_models(models: ModelOptions) -> ModelOptions:
    """Return options of models with absolute paths.

    A URL and a folder that does not exist, which can be a name on the hub, remain unchanged.
    """
    paths = [(name, getattr(models, name)) for name in (*MODEL_FOLDERS, *MODEL_FILES)]
    absolute = {
        name: os.path.abspath(path)
        for name, path in paths
        if path and (name in MODEL_FILES or (not is_url(path) and os.path.exists(path)))
    }
    return replace(models, **absolute)


def absolute_recipe(spec: RecipeSpec) -> RecipeSpec:
    """Return a recipe whose `path/to/file.py:name` is absolute, also in the stages.

    Objects remain unchanged.
    """
    stages = [each | {"recipe": _absolute_reference(each["recipe"])} for each in spec.stages]
    recipe = _absolute_reference(spec.recipe)
    return msgspec.structs.replace(spec, recipe=recipe, stages=stages)


def _absolute_reference(recipe: Any) -> Any:
    if not isinstance(recipe, str):
        return recipe
    place, _, name = recipe.rpartition(":")
    return f"{os.path.abspath(place)}:{name}" if place.endswith(".py") else recipe
