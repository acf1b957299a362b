"""The table of the built-in recipes, and `recipe`, which builds one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from rag_rewards.definition import RecipeDefinition
from rag_rewards.errors import SettingError, UnknownRecipeError
from rag_rewards.recipe_object import Recipe
from rag_rewards.rewards.decision_threshold import split_decision
from rag_rewards.settings import did_you_mean


class RecipeTable(Mapping[str, RecipeDefinition]):
    """Definitions of recipes by name. Each is imported from its module when it is first used."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> RecipeDefinition:
        module, constant = self._places[name].split(":")
        definition: RecipeDefinition = getattr(import_module(f"{__name__}.{module}"), constant)
        return definition

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


RECIPES = RecipeTable(
    {
        "arena": "arena:ARENA",
        "ground-grpo-stage1": "ground_grpo:GROUND_GRPO_STAGE1",
        "ground-grpo": "ground_grpo:GROUND_GRPO",
        "lear": "lear:LEAR",
        "truthrl": "truthrl:TRUTHRL",
        "ctrl-rag": "ctrl_rag:CTRL_RAG",
        "ctrl-rag-clr": "ctrl_rag:CTRL_RAG_CLR",
        "naive-grpo": "arena:NAIVE_GRPO",
        "dr-tulu": "dr_tulu:DR_TULU",
        "rag-total": "rag_total:RAG_TOTAL",
        "rubric": "rubric:RUBRIC",
        "ruler": "ruler:RULER",
        "search-r1": "search_r1:SEARCH_R1",
        "stepsearch": "stepsearch:STEPSEARCH",
        "igpo": "igpo:IGPO",
        "carr": "carr:CARR",
        "binary-rar": "binary_rar:BINARY_RAR",
        "rlcr": "rlcr:RLCR",
        "autorefine": "autorefine:AUTOREFINE",
        "ikea": "ikea:IKEA",
        "rag-env": "rag_env:RAG_ENV",
        "hiprag": "hiprag:HIPRAG",
        "canoe": "canoe:CANOE",
        "s3": "s3:S3",
    }
)
"""The built-in recipes: each name with the module and the constant that define it."""


def definition_of(name: str) -> RecipeDefinition:
    """Return the definition of a recipe by name. Raises UnknownRecipeError."""
    try:
        return RECIPES[name]
    except KeyError:
        raise UnknownRecipeError(f"no recipe {name!r}{did_you_mean(name, RECIPES)}") from None


def recipe(
    name: str, settings: Mapping[str, Any] | None = None, *, hardened: bool = False
) -> Recipe:
    """Return a recipe by name.

    settings  changed settings by dotted key
    hardened  whether the other settings have the values of the hardened profile

    Raises UnknownRecipeError, and SettingError for an unknown or invalid setting, or for one that
    a policy can exploit with the hardened profile.

    >>> recipe("arena", {"bonus.value": 5}).equation
    'format + accuracy + relevance + bonus'
    """
    return build_recipe(definition_of(name), settings, hardened=hardened)


def build_recipe(
    definition: RecipeDefinition,
    settings: Mapping[str, Any] | None = None,
    *,
    hardened: bool = False,
) -> Recipe:
    """Return the recipe of a definition, with settings and errors as in `recipe`."""
    changes, decision = split_decision(settings or {})
    profile = definition.hardened_values if hardened else {}
    values = definition.settings.values(profile | changes)
    if hardened:
        _check_hardened(definition, values)
    parts = definition.settings.build(values)
    recipe: Recipe = definition.build(**parts)
    own = definition.settings.values_of(parts)
    built_in = RECIPES.get(definition.name) is definition
    recipe = replace(recipe, settings=own, definition=definition, built_in=built_in)
    return recipe.decided_by(decision)


def _check_hardened(definition: RecipeDefinition, values: Mapping[str, Any]) -> None:
    """Raise SettingError for a value that a policy can exploit."""
    for key, reasons in definition.rejected.items():
        if (value := values[key]) in reasons:
            raise SettingError(
                f"recipe {definition.name}: setting {key}: {value} {reasons[value]}: set another "
                "value, or do not use the hardened profile"
            )
