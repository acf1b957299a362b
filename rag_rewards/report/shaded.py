"""An explanation on a terminal: words shaded by what the documents added to them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rag_rewards.report.explanation import Explanation, Segment
from rag_rewards.report.plain import plain
from rag_rewards.report.terminal import titled_table

STRONG = 2.0
"""Nats at which a word has its full colour."""


def print_explanation(console: Console, found: Explanation) -> None:
    """Everything about one rollout, the reward first; the signature last, in one line to copy."""
    console.print(Group(*explanation(found)))
    if found.signature:
        console.print(Text(plain(found.signature), style="dim"), soft_wrap=True)


def explanation(found: Explanation) -> Iterator[RenderableType]:
    """What is said of one rollout, from top to bottom."""
    reward = "not scored" if found.reward is None else f"{found.reward:.4g}"
    said = f"  advantage {found.advantage:+.2f} in its group" if found.advantage is not None else ""
    yield Text.assemble((plain(found.id), "bold cyan"), "  ", (f"reward {reward}", "bold"), said)
    if found.equation:
        yield Text(f"reward = {plain(found.equation)}", style="dim")
    yield Text(plain(found.reason))
    if found.question:
        yield Text.assemble(("\nquestion  ", "bold"), plain(found.question))
    for aliases in found.gold:
        yield Text.assemble(("gold      ", "bold"), plain(" | ".join(aliases)))
    yield Text("\nresponse", style="bold")
    yield shaded(found)
    if any(each.v is not None for each in found.segments):
        yield _legend(found)
    for note in found.notes:
        yield Text(f"note: {plain(note)}", style="dim")
    yield Text()
    yield _parts(found)
    if found.passages:
        yield _passages(found)
    if found.changes:
        yield _changes(found)


def shaded(found: Explanation) -> Text:
    """The response: green words owe to the documents, red ones stand against them."""
    text = Text()
    for each in found.segments:
        text.append(plain(each.text), style=_style(each))
    return text


def _style(each: Segment) -> str:
    base = {"tag": "dim ", "cite": "bold underline "}.get(each.k, "")
    if each.v is None or abs(each.v) < 0.05:
        return base.strip()
    share = min(abs(each.v) / STRONG, 1.0)
    strong, weak = 130, 30
    level = round(weak + share * (strong - weak))
    colour = f"rgb(0,{level},40)" if each.v > 0 else f"rgb({level},0,20)"
    return f"{base}white on {colour}"


def _legend(found: Explanation) -> Text:
    return Text.assemble(
        ("green", "white on rgb(0,130,40)"),
        " the documents make it likelier  ",
        ("red", "white on rgb(130,0,20)"),
        f" less likely; full colour at {STRONG:g} nats; {plain(found.tokens)}",
        style="dim",
    )


def _parts(found: Explanation) -> Table:
    table = titled_table(
        "components", ("component", "value", "reason", "improvement"), numbers=("value",)
    )
    for part in found.parts:
        value = "–" if part.value is None else f"{part.value:.4g}"
        table.add_row(
            Text(plain(part.name)), value, Text(plain(part.why)), Text(plain(part.change))
        )
    return table


def _passages(found: Explanation) -> Table:
    """By how much each matters, the most first."""
    table = titled_table("documents", ("", "nats", "document"), numbers=("nats",))
    order = sorted(found.passages, key=lambda each: -(each.effect or 0.0))
    for each in order:
        marks = ("supports" if each.supporting else "", "cited" if each.cited else "")
        effect = "" if each.effect is None else f"{each.effect:+.2f}"
        label = Text.assemble((f"[{plain(each.label)}] ", "cyan"), ", ".join(filter(None, marks)))
        text = f"{each.title}: {each.text}" if each.title else each.text
        table.add_row(label, effect, Text(plain(" ".join(text.split())[:400])))
    return table


def _changes(found: Explanation) -> Table:
    table = titled_table("what if", ("the same response", "reward"), numbers=("reward",))
    for each in found.changes:
        now = f"{each.reward:.4g}"
        if found.reward is not None:
            now += f" ({each.reward - found.reward:+.4g})"
        table.add_row(Text(plain(each.what)), now)
    return table
