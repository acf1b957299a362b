"""rag-rewards replay"""

from __future__ import annotations

from typing import Annotated

import typer

from rag_rewards.cli import option
from rag_rewards.cli.output import console, print_json


def replay(
    source: Annotated[str, typer.Argument(metavar="IN", help="Rows that carry evidence.")],
    recipe: option.Recipe = None,
    changes: option.Set = None,
    config: option.Config = None,
    hardened: option.Hardened = False,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", help="A setting of the scoring to compare with."),
    ] = None,
    group_size: option.GroupSize = None,
    sort: option.Sort = False,
    show: Annotated[int, typer.Option("--show", help="How many changed rollouts to show.")] = 5,
    json: option.Json = False,
) -> None:
    """Score rows again with other settings: what changes in rewards, advantages, dead groups."""
    from rag_rewards.commands.replay import compare, make_plans, print_comparison

    before, after = make_plans(
        source, recipe, changes or (), config, hardened=hardened, base=base or ()
    )
    comparison = compare(source, before, after, group_size=group_size, sort=sort, show=show)
    if json:
        print_json(comparison)
    else:
        print_comparison(console(110), comparison)
    raise typer.Exit(3 if comparison.errors else 0)
