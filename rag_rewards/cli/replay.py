"""`rag-rewards replay`: score rows again with other settings and compare the rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter
from msgspec.json import encode
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.cli.options import (
    GROUP_DEFAULTS,
    RECIPE,
    RECIPE_DEFAULTS,
    Columns,
    Grouping,
    Input,
    Recipe,
)
from rag_rewards.cli.output import console, print_json, print_messages
from rag_rewards.cli.recipe_options import parse_settings
from rag_rewards.errors import UsageError, plain
from rag_rewards.report.terminal import titled_table
from rag_rewards.scoring.replay import ReplayResult, RolloutChange, Variation
from rag_rewards.scoring.replay import replay as replay_rows


def replay(
    source: Input,
    /,
    *,
    columns: Columns = None,
    show: int = 5,
    json: bool = False,
    base: Annotated[Sequence[str], Parameter(group=RECIPE)] = (),
    recipe: Recipe = RECIPE_DEFAULTS,
    grouping: Grouping = GROUP_DEFAULTS,
) -> int:
    """Score rows again with other settings and compare the rewards.

    The command scores each row twice: first with the settings in its signature, then with the
    changed settings. If a row has no signature, the first settings are the defaults of `--recipe`.
    The rows must contain their evidence. The output compares the rewards, the advantages, and the
    number of groups in which all rewards are equal. The exit code is 3 if some rows cannot be
    scored.

    Parameters
    ----------
    source
        Read rows from this file: JSON lines (.gz, .zst) or .parquet.
    show
        Show this number of rollouts, those with the largest changes.
    json
        Print JSON.
    base
        Change a setting in both runs, as KEY=VALUE. --set changes only the second run. Repeatable.
    """
    recipe.refuse_models("replay")
    changes = recipe.spec(required=False)
    if changes.stages:
        raise UsageError(
            f"{recipe.config}: replay changes the settings of one recipe and takes no stages: "
            "remove `stages`"
        )
    result = replay_rows(
        source,
        Variation(changes, parse_settings(base)),
        group_size=grouping.group_size,
        sort=grouping.sort,
        show=show,
        columns=columns,
    )
    if json:
        print_json(result)
    else:
        print_result(console(110), result)
    print_messages(f"warning: {warning}" for warning in result.warnings)
    return 3 if result.errors else 0


def print_result(console: Console, result: ReplayResult) -> None:
    """Print the settings, means and rollouts that change."""
    console.print(Text("settings that differ", style="bold"))
    for key, (old, new) in result.settings.items():
        values = " → ".join(encode(value).decode() for value in (old, new))
        console.print(Text(f"  {plain(f'{key}: {values}')}"))
    if not result.settings:
        console.print("  none")
    numbers = ("before", "after", "change")
    table = titled_table("", ("mean", *numbers), numbers)
    for name, (before, after) in result.means.items():
        table.add_row(name, f"{before:.4f}", f"{after:.4f}", f"{after - before:+.4f}")
    console.print(table)
    console.print(
        f"{result.rows:,} rollouts in {result.groups:,} groups: {result.changed:,} rewards change, "
        f"{result.sign_flips:,} advantages change sign, mean |Δ advantage| "
        f"{result.advantage_shift:.3f}",
        highlight=False,
    )
    console.print(
        f"groups without signal: {result.dead_before:,} before, {result.dead_after:,} after",
        highlight=False,
    )
    if result.recorded:
        console.print(
            f"recorded rewards that the first run reproduces: {result.reproduced:,} of "
            f"{result.recorded:,}",
            highlight=False,
        )
    if result.errors:
        console.print(
            f"{result.errors:,} rows in error, the first: {plain(result.first_error)}",
            style="red",
            highlight=False,
            markup=False,
        )
    if result.most_changed:
        console.print(_changes(result.most_changed))


def _changes(changes: Sequence[RolloutChange]) -> Table:
    numbers = ("reward before", "after", "advantage before", "after ")
    table = titled_table("largest changes", ("rollout", *numbers), numbers=numbers)
    for change in changes:
        table.add_row(
            Text(plain(change.id), style="cyan"),
            f"{change.before:.3f}",
            f"{change.after:.3f}",
            f"{change.advantage_before:+.3f}",
            f"{change.advantage_after:+.3f}",
        )
    return table
