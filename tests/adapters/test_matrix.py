"""The cells of the table of trainers agree with the recipes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rag_rewards_adapters.callables import batch, each

import rag_rewards as rr
from rag_rewards.errors import DataError, UsageError
from rag_rewards.recipes import RECIPES

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainers"))
from build_matrix import CELLS, COLUMNS, DEFAULTS, cell, kind_of, kinds_of
from golden import bare


def test_every_kind_has_a_cell() -> None:
    assert {kind for name in RECIPES for kind in kinds_of(name)} <= DEFAULTS.keys()
    assert CELLS.keys() <= COLUMNS.keys()
    assert all(cells.keys() <= DEFAULTS.keys() for cells in CELLS.values())


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_kind_of_a_recipe_matches_its_evidence(recipe: str) -> None:
    fields = " ".join(RECIPES[recipe].fields)
    assert ("group" in kind_of(recipe)) == (rr.recipe(recipe).scope == "group")
    asks = {
        "nli": "entailment",
        "verdicts": "judge",
        "logprobs": "likelihood",
        "masked": "likelihood",
        "generated": "likelihood",
    }
    expected = {kind for word, kind in asks.items() if word in fields} or {"rules"}
    assert {kind_of(recipe).removesuffix(" of a group")} == expected


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_column_of_any_function(recipe: str) -> None:
    """Recipes of rules work without settings. The others name the missing evidence."""
    rewards = batch(recipe)(bare(recipe))
    entry = cell(recipe, "function")
    assert (None not in rewards) == (entry.state == "works")
    if "batch()" in entry.text:
        with pytest.raises(UsageError, match=r"use batch\(\)"):
            each(recipe)
    elif entry.state == "setting":
        with pytest.raises(DataError, match=r"nli|verdicts|logprobs|masked|generated"):
            each(recipe)(bare(recipe)[rewards.index(None)])


@pytest.mark.parametrize("recipe", [name for name in RECIPES if RECIPES[name].model_free])
def test_model_free_settings_need_no_model(recipe: str) -> None:
    settings = RECIPES[recipe].model_free
    assert None not in batch(recipe, settings=settings)(bare(recipe))
    assert all(f"`{key}={value}`" in cell(recipe, "trl").text for key, value in settings.items())
