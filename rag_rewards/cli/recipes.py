"""`rag-rewards recipes`"""

from __future__ import annotations

from rag_rewards.cli.output import console, print_json
from rag_rewards.commands.recipes import as_data, print_recipe, print_recipes
from rag_rewards.recipes import RECIPES


def recipes(name: str | None = None, /, *, json: bool = False) -> None:
    """List the recipes, or describe one of them.

    The description contains components, settings with sources, the equation and loopholes.

    Parameters
    ----------
    name
        Describe this recipe.
    json
        Print JSON.
    """
    if json:
        print_json(as_data(name) if name else [as_data(each) for each in RECIPES])
    elif name:
        print_recipe(console(120), name)
    else:
        print_recipes(console(120))
