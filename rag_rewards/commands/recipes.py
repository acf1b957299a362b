"""`rag-rewards recipes`: what there is, and all there is to know about one."""

from __future__ import annotations

from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.blueprints import Blueprint
from rag_rewards.recipes import RECIPES, blueprint, recipe
from rag_rewards.settings import describe


def print_recipes(console: Console) -> None:
    """One line each."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("recipe", "reward", "scope", "source"):
        table.add_column(name, overflow="fold")
    for name, plan in RECIPES.items():
        built = recipe(name)
        table.add_row(
            Text(name, style="cyan"), Text(built.equation), built.scope, Text(plan.source)
        )
    console.print(table)
    console.print("rag-rewards recipes NAME: components, settings, sources, loopholes")


def print_recipe(console: Console, name: str) -> None:
    """Components, equation, settings with defaults and sources, hardened profile, loopholes."""
    plan, built = blueprint(name), recipe(name)
    console.print(Text.assemble((name, "bold cyan"), f"  {plan.summary}"))
    for label, text in (
        ("source", plan.source),
        ("output", plan.output),
        ("reward", built.equation),
        ("components", ", ".join(built.component_names)),
        ("scope", "whole groups" if built.scope == "group" else "single rollouts"),
        ("needs", ", ".join(("response", *plan.fields))),
    ):
        console.print(Text.assemble((f"  {label:<11}", "bold"), text))
    console.print(_settings(plan))
    if plan.hardened:
        console.print(_hardened(plan))
    for title, lines in (
        ("loopholes of the default profile, by attack number", plan.loopholes),
        ("deviations from the authors' code", plan.deviations),
        ("training side", plan.training),
    ):
        if lines:
            console.print(Text(f"  {title}", style="bold"))
            for line in lines:
                console.print(Text(f"    {line}"))


def as_data(name: str) -> dict[str, Any]:
    """The same as plain data, for --json."""
    plan, built = blueprint(name), recipe(name)
    return {
        "name": name,
        "summary": plan.summary,
        "source": plan.source,
        "output": plan.output,
        "equation": built.equation,
        "components": list(built.component_names),
        "scope": built.scope,
        "fields": ["response", *plan.fields],
        "settings": [msgspec.to_builtins(setting) for setting in describe(plan.settings)],
        "hardened": {
            key: {"value": flip.value, "closes": list(flip.closes), "why": flip.why}
            for key, flip in plan.hardened.items()
        },
        "loopholes": list(plan.loopholes),
        "deviations": list(plan.deviations),
        "training": list(plan.training),
    }


def _settings(plan: Blueprint) -> Table:
    table = Table(title="settings", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in ("setting", "default", "what", "source of the default"):
        table.add_column(name, overflow="fold")
    for setting in describe(plan.settings):
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


def _hardened(plan: Blueprint) -> Table:
    table = Table(
        title="--hardened changes", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for name in ("setting", "to", "closes", "against"):
        table.add_column(name, overflow="fold")
    for key, flip in plan.hardened.items():
        table.add_row(
            Text(key, style="cyan"),
            Text(_value(flip.value)),
            ", ".join(map(str, flip.closes)) or "–",
            Text(flip.why),
        )
    return table


def _value(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 48 else text[:45] + "…"
