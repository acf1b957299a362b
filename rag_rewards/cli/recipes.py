"""`rag-rewards recipes`: list the recipes, or describe one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.cli.output import console, print_json
from rag_rewards.definition import RecipeDefinition
from rag_rewards.errors import shorten
from rag_rewards.loading import load_recipe
from rag_rewards.recipe_object import OWN_SOURCE, Recipe
from rag_rewards.recipes import RECIPES, recipe
from rag_rewards.report.terminal import titled_table
from rag_rewards.settings import Setting


def recipes(name: str | None = None, /, *, json: bool = False) -> None:
    """List the recipes, or describe one of them.

    The description contains the equation, the components, the settings with their sources, and the
    known loopholes.

    Parameters
    ----------
    name
        Describe this recipe: a name, or your own recipe as `module:name` or `path/file.py:name`.
    json
        Print JSON.
    """
    if json:
        print_json(_data(name) if name else [recipe_data(recipe(each)) for each in RECIPES])
    elif name:
        for title, built in _titled(name):
            print_recipe(console(120), title, built)
    else:
        print_recipes(console(120))


def print_recipes(console: Console) -> None:
    """Print one line for each recipe."""
    table = titled_table("", ("recipe", "reward", "scope", "source"))
    for name, definition in RECIPES.items():
        built = recipe(name)
        table.add_row(
            Text(name, style="cyan"), Text(built.equation), built.scope, Text(definition.source)
        )
    console.print(table)
    console.print("rag-rewards recipes NAME: components, settings, sources, loopholes")


def _titled(name: str) -> list[tuple[str, Recipe]]:
    """Return a recipe, or those of the stages of a curriculum, with titles."""
    stages = load_recipe(name).recipes
    if len(stages) == 1:
        return [(name, stages[0])]
    count = len(stages)
    return [(f"{name}, stage {i + 1} of {count}", each) for i, each in enumerate(stages)]


def _data(name: str) -> Any:
    described = [recipe_data(built, title) for title, built in _titled(name)]
    return described if len(described) > 1 else described[0]


def print_recipe(console: Console, name: str, built: Recipe) -> None:
    """Print the components, settings with sources, hardened profile and loopholes of a recipe."""
    definition = built.facts
    console.print(Text.assemble((name, "bold cyan"), f"  {definition.summary}"))
    fields = ", ".join(("response", *definition.fields))
    if definition.source == OWN_SOURCE:
        fields += ", and those that your rewards read"
    for label, text in (
        ("source", definition.source),
        ("output", definition.output.description),
        ("reward", built.equation),
        ("scope", "whole groups" if built.scope == "group" else "single rollouts"),
        ("fields", fields),
        ("prompts", ", ".join(definition.prompts)),
    ):
        console.print(Text.assemble((f"  {label:<11}", "bold"), text))
    console.print(_components(definition))
    if settings := definition.settings.descriptions:
        console.print(_settings(settings, built.settings or {}))
    if definition.hardened:
        console.print(_hardened(definition))
    for title, lines in (
        ("loopholes of the default profile, by attack number", definition.loopholes),
        ("deviations from the authors' code", definition.deviations),
        ("training settings", definition.training.summary()),
        ("training data", definition.data.summary()),
    ):
        if lines:
            console.print(Text(f"  {title}", style="bold"))
            for line in lines:
                console.print(Text(f"    {line}"))


def recipe_data(built: Recipe, name: str = "") -> dict[str, Any]:
    """Return the description of a recipe as JSON data."""
    definition = built.facts
    return {
        "name": name or definition.name,
        "summary": definition.summary,
        "source": definition.source,
        "output": definition.output.description,
        "equation": built.equation,
        "components": list(built.component_names),
        "ranges": {each.name: each.range for each in definition.components},
        "scope": built.scope,
        "fields": ["response", *definition.fields],
        "prompts": list(definition.prompts),
        "settings": [msgspec.to_builtins(setting) for setting in definition.settings.descriptions],
        "hardened": {
            key: {"value": change.value, "closes": list(change.closes), "why": change.why}
            for key, change in definition.hardened.items()
        },
        "loopholes": list(map(str, definition.loopholes)),
        "deviations": list(definition.deviations),
        "training": definition.training.summary(),
        "data": definition.data.summary(),
    }


def _components(definition: RecipeDefinition) -> Table:
    table = titled_table("components", ("component", "meaning", "range", "added by"))
    for component in definition.components:
        name = Text(component.name, style="cyan")
        table.add_row(name, Text(component.meaning), component.range, component.when)
    return table


def _settings(settings: Sequence[Setting], values: Mapping[str, Any]) -> Table:
    """Return the settings with their values. An object of the user can have other values."""
    table = titled_table("settings", ("setting", "value", "meaning", "source of the default"))
    for setting in settings:
        has_choices = " | " in setting.type and "true" not in setting.type
        choices = f" ({setting.type})" if has_choices else ""
        table.add_row(
            Text(setting.key, style="cyan"),
            Text(_value(values.get(setting.key, setting.default))),
            Text(setting.doc + choices),
            Text(setting.source),
        )
    return table


def _hardened(definition: RecipeDefinition) -> Table:
    table = titled_table("--hardened changes", ("setting", "value", "attacks", "reason"))
    for key, change in definition.hardened.items():
        attacks = ", ".join(map(str, change.closes)) or "–"
        table.add_row(
            Text(key, style="cyan"), Text(_value(change.value)), attacks, Text(change.why)
        )
    return table


def _value(value: Any) -> str:
    return shorten(msgspec.json.encode(value).decode(), 48)
