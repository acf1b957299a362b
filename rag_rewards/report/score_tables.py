"""Tables of scored rows for a terminal: means, best and worst rollouts, and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.errors import plain, shorten
from rag_rewards.groups import positions_by_key
from rag_rewards.report.reasons import Components, no_spread_of, reason
from rag_rewards.report.terminal import titled_table
from rag_rewards.rows import ScoredRow, Totals
from rag_rewards.training.advantages import mean_std


class TableRow(NamedTuple):
    """The values of a scored row that the tables show."""

    id: str
    group: str
    reward: float | None
    reason: str
    components: Components


Groups = Mapping[str, Sequence[TableRow]]
"""The rows of each group, by the name of the group or the id of a row without one."""

DIGITS = 3
"""Decimal places of a reward in the tables of rollouts."""

_ROW = msgspec.json.Decoder(ScoredRow)


def table_rows(lines: bytes) -> Iterator[TableRow]:
    """Yield the table rows of scored rows, which are JSON lines."""
    for line in lines.split(b"\n")[:-1]:
        row = _ROW.decode(line)
        components = row.components or {}
        yield TableRow(str(row.id), row.key or "", row.reward, reason(row, row.score), components)


def print_scores(
    console: Console,
    title: str,
    equation: str,
    totals: Totals,
    rows: Sequence[TableRow],
    show: int = 3,
) -> None:
    """Print the means, the best and worst rollouts with reasons, and the groups.

    Rollouts with the same reward, as it is printed, keep their order.
    """
    console.print(Text.assemble((title, "bold"), f"   reward = {equation}"))
    console.print(_means(totals))
    groups = _grouped(rows)
    scored = sorted(
        (row for row in rows if row.reward is not None),
        key=lambda row: round(row.reward or 0.0, DIGITS),
        reverse=True,
    )
    if scored:
        console.print(_rollouts("best", scored[:show], groups))
        if len(scored) > show:
            worst = scored[max(show, len(scored) - show) :]
            console.print(_rollouts("worst", worst, groups))
    if any(len(members) > 1 for members in groups.values()):
        console.print(_groups(groups))


def _means(totals: Totals) -> Table:
    means = totals.means()
    table = titled_table("means", means, numbers=means)
    table.add_row(*(f"{value:.3f}" for value in means.values()))
    return table


def _rollouts(title: str, rows: Sequence[TableRow], groups: Groups) -> Table:
    table = titled_table(title, ("reward", "rollout", "reason"), numbers=("reward",))
    for row in rows:
        # Text, because square brackets in a response would be read as markup.
        no_spread = no_spread_of([each.components for each in groups[row.group or row.id]])
        reasons = f"{row.reason}; {no_spread}" if row.reward == 0 and no_spread else row.reason
        name = Text(plain(row.id), style="cyan")
        table.add_row(f"{row.reward:.{DIGITS}f}", name, Text(plain(reasons)))
    return table


def _grouped(rows: Sequence[TableRow]) -> Groups:
    groups = positions_by_key(row.group or row.id for row in rows)
    return {key: [rows[i] for i in positions] for key, positions in groups.items()}


def _groups(groups: Groups, limit: int = 12) -> Table:
    """Return statistics of the first groups. Equal rewards in a group give no training signal."""
    numbers = ("n", "mean", "std", "best", "worst")
    table = titled_table("groups", ("group", *numbers, "signal"), numbers=numbers)
    dead = 0
    for i, (name, members) in enumerate(groups.items()):
        rewards = [row.reward for row in members if row.reward is not None]
        if not rewards:
            continue
        mean, std = mean_std(rewards)
        is_dead = max(rewards) == min(rewards)
        dead += is_dead
        if i < limit:
            label = plain(shorten(name, 40))
            table.add_row(
                Text(label),
                str(len(rewards)),
                f"{mean:.3f}",
                f"{std:.3f}",
                f"{max(rewards):.3f}",
                f"{min(rewards):.3f}",
                Text("none", style="red") if is_dead else Text("█" * min(round(10 * std) + 1, 12)),
            )
    shown = f", {limit} of them shown" if len(groups) > limit else ""
    table.caption = f"{len(groups)} groups, {dead} without signal{shown}"
    table.caption_justify = "left"
    return table
