"""`rag-rewards replay`: the same rows under other settings, without a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.commands.plans import make_plan, parse_changes, read_config
from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.reading import Group, groups_of, open_source
from rag_rewards.recipes import dotted
from rag_rewards.report.terminal import plain
from rag_rewards.rollout import Rollout, Score, decode_row
from rag_rewards.scoring import Plan
from rag_rewards.training.advantages import zscores


class Change(msgspec.Struct, frozen=True):
    """One rollout under both settings. Advantages are z-scores within its group."""

    id: str
    group: str
    before: float
    after: float
    advantage_before: float
    advantage_after: float


class Comparison(msgspec.Struct, kw_only=True):
    """What other settings change."""

    before: str
    after: str
    rows: int = 0
    errors: int = 0
    first_error: str = ""
    groups: int = 0
    changed: int = 0
    dead_before: int = 0
    dead_after: int = 0
    sign_flips: int = 0
    advantage_shift: float = 0.0
    means: dict[str, tuple[float, float]] = {}
    most_changed: list[Change] = []


def make_plans(
    source: str,
    recipe: str | None,
    changes: Sequence[str],
    config: Path | None,
    *,
    hardened: bool,
    base: Sequence[str],
) -> tuple[Plan, Plan]:
    """The plan to compare with, and the new one.

    The first is what the rows' own signature says, or the recipe's defaults, with --base; the
    second is the first with --config and --set.
    """
    recorded = recorded_settings(source)
    configured = read_config(config).get("recipe") if config else None
    name = recipe or configured or (recorded[0] if recorded else None)
    if not name:
        raise UsageError("which recipe? the rows carry no signature: give --recipe NAME")
    if config and "stages" in read_config(config):
        raise UsageError("replay compares one recipe with itself; it takes no stages")
    asked = make_plan(name, changes, config, hardened=hardened)
    settings = recorded[1] if recorded and recorded[0] == name else {}
    before = Plan(recipe=name, settings=settings | parse_changes(base))
    before.build()
    flips = _hardened_flips(name) if asked.hardened else {}
    after = Plan(recipe=name, settings=dotted(before.settings) | flips | asked.settings)
    after.build()
    return before, after


def recorded_settings(source: str) -> tuple[str, dict[str, Any]] | None:
    """Recipe and settings from the signature on a file's first row, if it has one."""
    if source == "-":
        return None
    opened = open_source(source)
    try:
        line = next((line for _, line in opened.lines), b"{}")
    finally:
        opened.close()
    try:
        row = msgspec.json.decode(line)
        _, _, name, settings = row["signature"].split(" ", 3)
        return name, msgspec.json.decode(settings, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, TypeError, KeyError, ValueError, AttributeError):
        return None


def _hardened_flips(name: str) -> dict[str, Any]:
    from rag_rewards.recipes import blueprint

    return {key: flip.value for key, flip in blueprint(name).hardened.items()}


def compare(
    source: str,
    before: Plan,
    after: Plan,
    *,
    group_size: int | None = None,
    sort: bool = False,
    show: int = 5,
) -> Comparison:
    """Score every group twice. Memory does not grow with the file."""
    old, new = before.build(), after.build()
    found = Comparison(before=old.signature, after=new.signature)
    sums: dict[str, list[float]] = {}
    for group in _groups(source, group_size, sort):
        rollouts = _decoded(group, found)
        if not rollouts:
            continue
        everyone = [range(len(rollouts))]
        pairs = list(
            zip(
                rollouts,
                old.score_each(rollouts, everyone),
                new.score_each(rollouts, everyone),
                strict=True,
            )
        )
        _add_group(found, sums, pairs, show)
    found.means = {name: (total[0] / total[2], total[1] / total[2]) for name, total in sums.items()}
    found.advantage_shift /= max(found.rows, 1)
    return found


def _groups(source: str, group_size: int | None, sort: bool) -> Iterator[Group]:
    with contextlib.closing(open_source(source)) as opened:
        yield from groups_of(opened, group_size, sort)


def _decoded(group: Group, found: Comparison) -> list[Rollout]:
    rollouts: list[Rollout] = []
    for number, line in group.lines:
        try:
            rollouts.append(decode_row(line))
        except RolloutError as error:
            return _fail(found, len(group.lines), f"line {number}: {error}")
    if group.problem:
        return _fail(found, len(group.lines), f"line {group.lines[0][0]}: {group.problem}")
    return rollouts


def _fail(found: Comparison, rows: int, why: str) -> list[Rollout]:
    found.errors += rows
    found.first_error = found.first_error or why
    return []


def _add_group(
    found: Comparison,
    sums: dict[str, list[float]],
    pairs: Iterable[tuple[Rollout, Score | RolloutError, Score | RolloutError]],
    show: int,
) -> None:
    kept: list[tuple[Rollout, float, float]] = []
    for rollout, old, new in pairs:
        fault = next((s for s in (old, new) if isinstance(s, RolloutError)), None)
        if isinstance(old, RolloutError) or isinstance(new, RolloutError):
            _fail(found, 1, str(fault))
            continue
        _add_means(sums, old, new)
        if old.value is not None and new.value is not None:
            kept.append((rollout, old.value, new.value))
    if not kept:
        return
    olds, news = [old for _, old, _ in kept], [new for _, _, new in kept]
    found.rows += len(kept)
    found.groups += 1
    found.dead_before += len(kept) > 1 and max(olds) == min(olds)
    found.dead_after += len(kept) > 1 and max(news) == min(news)
    for (rollout, was, now), a, b in zip(kept, zscores(olds), zscores(news), strict=True):
        found.changed += was != now
        found.sign_flips += a * b < 0
        found.advantage_shift += abs(b - a)
        if was != now or a != b:
            name = str(rollout.id) if rollout.id is not None else "?"
            found.most_changed.append(Change(name, rollout.key or "", was, now, a, b))
    found.most_changed.sort(key=_size, reverse=True)
    del found.most_changed[max(show, 0) :]


def _add_means(sums: dict[str, list[float]], old: Score, new: Score) -> None:
    pairs = {"reward": (old.value, new.value), "correct": (old.correct, new.correct)}
    pairs |= {name: (value, new.components.get(name)) for name, value in old.components.items()}
    for name, (a, b) in pairs.items():
        if a is not None and b is not None:
            total = sums.setdefault(name, [0.0, 0.0, 0.0])
            total[0] += a
            total[1] += b
            total[2] += 1


def _size(change: Change) -> float:
    return abs(change.advantage_after - change.advantage_before) + abs(change.after - change.before)


def print_comparison(console: Console, found: Comparison) -> None:
    """The comparison for people."""
    console.print(Text("settings that differ", style="bold"))
    for line in _differences(found.before, found.after) or ["none"]:
        console.print(Text(f"  {plain(line)}"))
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("mean", "before", "after", "change"):
        table.add_column(column, justify="left" if column == "mean" else "right")
    for name, (before, after) in found.means.items():
        table.add_row(name, f"{before:.4f}", f"{after:.4f}", f"{after - before:+.4f}")
    console.print(table)
    console.print(
        f"{found.rows:,} rollouts in {found.groups:,} groups: {found.changed:,} rewards change, "
        f"{found.sign_flips:,} advantages change sign, mean |Δ advantage| "
        f"{found.advantage_shift:.3f}",
        highlight=False,
    )
    console.print(
        f"groups without signal: {found.dead_before:,} before, {found.dead_after:,} after",
        highlight=False,
    )
    if found.errors:
        console.print(
            f"{found.errors:,} rows in error, the first: {plain(found.first_error)}",
            style="red",
            highlight=False,
            markup=False,
        )
    if found.most_changed:
        console.print(_changes(found.most_changed))


def _changes(changes: Sequence[Change]) -> Table:
    table = Table(
        title="most changed", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for column in ("rollout", "reward before", "after", "advantage before", "after "):
        table.add_column(column, justify="left" if column == "rollout" else "right")
    for change in changes:
        table.add_row(
            Text(plain(change.id), style="cyan"),
            f"{change.before:.3f}",
            f"{change.after:.3f}",
            f"{change.advantage_before:+.3f}",
            f"{change.advantage_after:+.3f}",
        )
    return table


def _differences(before: str, after: str) -> list[str]:
    old, new = (
        msgspec.json.decode(signature.split(" ", 3)[3], type=dict[str, Any])
        for signature in (before, after)
    )
    return [f"{key}: {old[key]!r} → {new[key]!r}" for key in new if old[key] != new[key]]
