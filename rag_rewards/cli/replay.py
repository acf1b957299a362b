"""`rag-rewards replay`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from rag_rewards.cli.options import (
    FILES,
    GROUP_DEFAULTS,
    RECIPE,
    RECIPE_DEFAULTS,
    Grouping,
    Recipe,
)
from rag_rewards.cli.output import console, print_json
from rag_rewards.commands.replay import Variation, compare, print_comparison


def replay(
    source: Annotated[str, Parameter(name="IN", group=FILES, allow_leading_hyphen=True)],
    /,
    *,
    show: int = 5,
    json: bool = False,
    base: Annotated[Sequence[str], Parameter(group=RECIPE)] = (),
    recipe: Recipe = RECIPE_DEFAULTS,
    grouping: Grouping = GROUP_DEFAULTS,
) -> int:
    """Score rows again with other settings and compare the rewards.

    The rows must contain their evidence. The output shows how rewards, advantages and groups
    without a signal change.

    Parameters
    ----------
    source
        Read rows from this file: JSON lines or .parquet.
    show
        Show this number of rollouts with the largest changes.
    json
        Print JSON.
    base
        Change a setting of the scoring to compare with, as KEY=VALUE. Repeatable.
    """
    comparison = compare(
        source,
        Variation(recipe, base),
        group_size=grouping.group_size,
        sort=grouping.sort,
        show=show,
    )
    if json:
        print_json(comparison)
    else:
        print_comparison(console(110), comparison)
    return 3 if comparison.errors else 0
