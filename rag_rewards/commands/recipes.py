"""`rag-rewards recipes`: what there is, and all there is to know about one."""

from __future__ import annotations

from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.definition import RecipeDefinition
from rag_rewards.recipes import RECIPES, definition_of, recipe
from rag_rewards.settings import describe


def print_recipes(console: Console) -> None:
    """One line each."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("recipe", "reward", "scope", "source"):
        table.add_column(name, overflow="fold")
    for name, definition in RECIPES.items():
        built = recipe(name)
        table.add_row(
            Text(name, style="cyan"), Text(built.equation), built.scope, Text(definition.source)
        )
    console.print(table)
    console.print("rag-rewards recipes NAME: components, settings, sources, loopholes")


def print_recipe(console: Console, name: str) -> None:
    """Components, equation, settings with defaults and sources, hardened profile, loopholes."""
    definition, built = definition_of(name), recipe(name)
    console.print(Text.assemble((name, "bold cyan"), f"  {definition.summary}"))
    for label, text in (
        ("source", definition.source),
        ("output", definition.output.description),
        ("reward", built.equation),
        ("scope", "whole groups" if built.scope == "group" else "single rollouts"),
        ("needs", ", ".join(("response", *definition.fields))),
    ):
        console.print(Text.assemble((f"  {label:<11}", "bold"), text))
    console.print(_components(definition))
    console.print(_settings(definition))
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


def as_data(name: str) -> dict[str, Any]:
    """The same as plain data, for --json."""
    definition, built = definition_of(name), recipe(name)
    return {
        "name": name,
        "summary": definition.summary,
        "source": definition.source,
        "output": definition.output.description,
        "equation": built.equation,
        "components": list(built.component_names),
        "ranges": {each.name: each.range for each in definition.components},
        "scope": built.scope,
        "fields": ["response", *definition.fields],
        "settings": [msgspec.to_builtins(setting) for setting in describe(definition.settings)],
        "hardened": {
            key: {"value": change.value, "closes": list(change.closes), "why": change.why}
            for key, change in definition.hardened.items()
        },
        "loopholes": list(definition.loopholes),
        "deviations": list(definition.deviations),
        "training": definition.training.summary(),
        "data": definition.data.summary(),
    }


def _components(definition: RecipeDefinition) -> Table:
    table = Table(title="components", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in ("component", "meaning", "range", "added by"):
        table.add_column(name, overflow="fold")
    for component in definition.components:
        table.add_row(
            Text(component.name, style="cyan"),
            Text(component.meaning),
            component.range,
            component.when,
        )
    return table


def _settings(definition: RecipeDefinition) -> Table:
    table = Table(title="settings", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in ("setting", "default", "what", "source of the default"):
        table.add_column(name, overflow="fold")
    for setting in describe(definition.settings):
        choices = (
            f" ({setting.type})" if " | " in setting.type and "true" not in setting.type else ""
        )
        table.add_row(
            Text(setting.key, style="cyan"),
            Text(_value(setting.default)),
            Text(setting.doc + choices),
            Text(setting.source),
        )
    return table


def _hardened(definition: RecipeDefinition) -> Table:
    table = Table(
        title="--hardened changes", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for name in ("setting", "to", "closes", "against"):
        table.add_column(name, overflow="fold")
    for key, change in definition.hardened.items():
        table.add_row(
            Text(key, style="cyan"),
            Text(_value(change.value)),
            ", ".join(map(str, change.closes)) or "–",
            Text(change.why),
        )
    return table


def _value(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 48 else text[:45] + "…"
