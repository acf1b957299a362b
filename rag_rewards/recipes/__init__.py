"""The published systems as recipes, and the table that names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rag_rewards.blueprints import Blueprint, Recipe
from rag_rewards.errors import UnknownRecipeError
from rag_rewards.recipes.arena import ARENA, NAIVE_GRPO
from rag_rewards.recipes.ctrl_rag import CTRL_RAG, CTRL_RAG_CLR, RAG_TOTAL
from rag_rewards.recipes.ground_grpo import GROUND_GRPO, GROUND_GRPO_STAGE1
from rag_rewards.recipes.lear import LEAR
from rag_rewards.recipes.truthrl import TRUTHRL
from rag_rewards.settings import build, did_you_mean

RECIPES: dict[str, Blueprint] = {
    blueprint.name: blueprint
    for blueprint in (
        ARENA,
        GROUND_GRPO_STAGE1,
        GROUND_GRPO,
        LEAR,
        TRUTHRL,
        CTRL_RAG,
        CTRL_RAG_CLR,
        NAIVE_GRPO,
        RAG_TOTAL,
    )
}
"""Every recipe's blueprint, by its name."""


def blueprint(name: str) -> Blueprint:
    """The blueprint of that name. UnknownRecipeError names the nearest."""
    try:
        return RECIPES[name]
    except KeyError:
        raise UnknownRecipeError(f"no recipe {name!r}{did_you_mean(name, RECIPES)}") from None


def recipe(
    name: str, settings: Mapping[str, Any] | None = None, *, hardened: bool = False
) -> Recipe:
    """A recipe by name, with settings by dotted key over its defaults (or its hardened profile).

    >>> recipe("arena", {"bonus.value": 5}).equation
    'format + accuracy + relevance + bonus'
    """
    plan = blueprint(name)
    profile = {key: flip.value for key, flip in plan.hardened.items()} if hardened else {}
    return plan.build(build(plan.settings, profile | dotted(settings or {}), name))


def dotted(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted key, so that they can override each other key by key."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= dotted(value, f"{prefix}{key}.")
        else:
            flat[prefix + str(key)] = value
    return flat
