"""rag-rewards recipes"""

from __future__ import annotations

from typing import Annotated

import typer

from rag_rewards.cli import option
from rag_rewards.cli.output import console, print_json


def recipes(
    name: Annotated[str | None, typer.Argument(help="One recipe in full.")] = None,
    json: option.Json = False,
) -> None:
    """List the recipes; with a name: components, settings, sources, equation, loopholes."""
    from rag_rewards.commands.recipes import as_data, print_recipe, print_recipes
    from rag_rewards.recipes import RECIPES

    if json:
        print_json(as_data(name) if name else [as_data(each) for each in RECIPES])
    elif name:
        print_recipe(console(120), name)
    else:
        print_recipes(console(120))
