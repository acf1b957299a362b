"""`rag-rewards audit`: what pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.audit import ATTACKS, Attack, Audit, Finding, audit
from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.io.sources import open_source
from rag_rewards.loading import RecipeSource, import_object, load_recipe
from rag_rewards.model_options import ModelOptions
from rag_rewards.report.terminal import plain
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_row
from rag_rewards.training.curriculum import Curriculum


def run(
    recipe: RecipeSource, source: str | None, attacks: Sequence[str], models: ModelOptions
) -> Audit:
    """Audit a recipe. UsageError names the line of a row that does not decode.

    `attacks` are the user's own, as `module:name`.
    """
    reward = load_recipe(recipe)
    if isinstance(reward, Curriculum):
        raise UsageError("a curriculum cannot be audited as a whole: audit each stage's recipe")
    rows = read_rows(source) if source else None
    own: list[Attack] = [import_object(each) for each in attacks]
    return audit(reward, rows, attacks=own, models=models.load() if models.given else None)


def read_rows(source: str) -> list[Rollout]:
    """Return the rows of a file. UsageError names the line of one that does not decode."""
    opened = open_source(source)
    rows = []
    try:
        for number, line in opened.lines:
            try:
                rows.append(decode_row(line))
            except RolloutError as error:
                raise UsageError(f"line {number}: {error}") from None
    finally:
        opened.close()
    return rows


def as_data(found: Audit) -> dict[str, Any]:
    """The same as plain data, for --json."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(found)
    data["findings"] = [
        msgspec.to_builtins(each) | {"gain": each.gain, "pays": each.pays}
        for each in found.findings
    ]
    return data | {"ok": found.ok, "paying": len(found.paying)}


def print_audit(console: Console, found: Audit) -> None:
    """The audit for people: one line an attack, the most profitable try of each."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("", "attack", "tried", "pay", "most", "for example", "where"):
        table.add_column(name, overflow="fold", justify="right" if name in _NUMBERS else "left")
    for name, tries in _by_attack(found).items():
        paying = [each for each in tries if each.pays]
        worst = max(tries, key=lambda each: each.gain)
        number = tries[0].attack
        table.add_row(
            "" if number is None else str(number),
            Text(plain(name)),
            str(len(tries)),
            _count(paying),
            f"{worst.gain:+.3g}" if paying else "",
            Text(plain(_short(f"{worst.name}: {worst.response}"))) if paying else "",
            Text(plain(worst.row)) if paying else "",
        )
    console.print(table)
    _print_notes(console, found)


_NUMBERS = ("", "tried", "pay", "most")


def _count(paying: Sequence[Finding]) -> Text:
    if not paying:
        return Text("none", style="green")
    return Text(str(len(paying)), style="yellow" if all(p.excused for p in paying) else "red bold")


def _by_attack(found: Audit) -> dict[str, list[Finding]]:
    kinds: dict[str, list[Finding]] = {}
    order = sorted(found.findings, key=lambda each: (each.attack is None, each.attack or 0))
    for each in order:
        name = each.name if each.attack is None else ATTACKS[each.attack]
        kinds.setdefault(name, []).append(each)
    return kinds


def _print_notes(console: Console, found: Audit) -> None:
    def say(text: str, style: str = "") -> None:
        console.print(Text(plain(text), style=style), soft_wrap=True)

    for number, why in dict.fromkeys((each.attack, each.excused) for each in found.excused):
        say(f"{number} pays by definition: {why}", "yellow")
    if found.elsewhere:
        say(f"not tried under these settings: {'; '.join(found.elsewhere)}")
    if found.failed:
        say(f"{len(found.failed)} could not be scored, the first: {found.failed[0]}", "red")
    say(f"{found.rows} rows, evidence: {found.evidence}")
    say(found.signature, "dim")
    verdict = f"{len(found.findings)} tried, {len(found.paying)} pay"
    if found.excused:
        verdict += f", {len(found.excused)} more by the recipe's own definition"
    say(verdict, "bold red" if found.paying else "bold green")


def _short(text: str, limit: int = 90) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
