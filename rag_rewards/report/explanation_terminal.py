"""Print an explanation on a terminal, with words colored by the contribution of the documents."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rag_rewards.errors import plain
from rag_rewards.report.explanation import Explanation
from rag_rewards.report.segments import Segment
from rag_rewards.report.terminal import titled_table
from rag_rewards.report.turns_terminal import turn_parts

FULL_COLOR = 2.0
"""Nats at which a word has the full color."""
MIN_COLOR = 0.05
"""Nats below which a word has no color."""


def print_explanation(console: Console, explanation: Explanation) -> None:
    """Print an explanation. The signature is on one line, so that it can be copied."""
    console.print(Group(*explanation_parts(explanation)))
    if explanation.signature:
        console.print(Text(plain(explanation.signature), style="dim"), soft_wrap=True)


def explanation_parts(explanation: Explanation) -> Iterator[RenderableType]:
    """Yield the texts and tables of an explanation from top to bottom, without the signature."""
    reward = "unscored" if explanation.reward is None else f"reward {explanation.reward:.4g}"
    advantage = ""
    if explanation.advantage is not None:
        advantage = f"  advantage {explanation.advantage:+.2f} in its group"
    yield Text.assemble((plain(explanation.id), "bold cyan"), "  ", (reward, "bold"), advantage)
    if explanation.equation:
        yield Text(f"reward = {plain(explanation.equation)}", style="dim")
    yield Text(plain(explanation.reason))
    if explanation.question:
        yield Text.assemble(("\nquestion  ", "bold"), plain(explanation.question))
    for aliases in explanation.gold:
        yield Text.assemble(("gold      ", "bold"), plain(" | ".join(aliases)))
    yield from turn_parts(explanation)
    if explanation.has_response:
        yield Text("\nresponse", style="bold")
        yield colored_response(explanation)
    if any(segment.value is not None for segment in explanation.segments):
        yield _legend(explanation)
    for note in explanation.notes:
        yield Text(f"note: {plain(note)}", style="dim")
    yield Text()
    yield _components(explanation)
    if explanation.passages:
        yield _documents(explanation)
    if explanation.variants:
        yield _variants(explanation)


def colored_response(explanation: Explanation) -> Text:
    """Return the response. Green words are more likely with the documents, red words less."""
    text = Text()
    for segment in explanation.segments:
        text.append(plain(segment.text), style=_style(segment))
    return text


def _style(segment: Segment) -> str:
    base = {"tag": "dim ", "cite": "bold underline "}.get(segment.kind, "")
    if segment.value is None or abs(segment.value) < MIN_COLOR:
        return base.strip()
    share = min(abs(segment.value) / FULL_COLOR, 1.0)
    strong, weak = 130, 30
    level = round(weak + share * (strong - weak))
    color = f"rgb(0,{level},40)" if segment.value > 0 else f"rgb({level},0,20)"
    return f"{base}white on {color}"


def _legend(explanation: Explanation) -> Text:
    return Text.assemble(
        ("green", "white on rgb(0,130,40)"),
        ": more likely with the documents  ",
        ("red", "white on rgb(130,0,20)"),
        f": less likely; full color at {FULL_COLOR:g} nats; {plain(explanation.tokens)}",
        style="dim",
    )


def _components(explanation: Explanation) -> Table:
    columns = ("component", "value", "reason", "how to increase it")
    table = titled_table("components", columns, numbers=("value",))
    for each in explanation.components:
        value = "–" if each.value is None else f"{each.value:.4g}"
        reason, improvement = Text(plain(each.reason)), Text(plain(each.improvement))
        table.add_row(Text(plain(each.name)), value, reason, improvement)
    return table


def _documents(explanation: Explanation) -> Table:
    """Return the documents, sorted by their effect."""
    table = titled_table("documents", ("", "nats", "document"), numbers=("nats",))
    for passage in sorted(explanation.passages, key=lambda each: -(each.effect or 0.0)):
        marks = ("supporting" if passage.supporting else "", "cited" if passage.cited else "")
        effect = "" if passage.effect is None else f"{passage.effect:+.2f}"
        names = ", ".join(filter(None, marks))
        label = Text.assemble((f"[{plain(passage.label)}] ", "cyan"), names)
        text = f"{passage.title}: {passage.text}" if passage.title else passage.text
        table.add_row(label, effect, Text(plain(" ".join(text.split())[:400])))
    return table


def _variants(explanation: Explanation) -> Table:
    table = titled_table("variants of the response", ("variant", "reward"), numbers=("reward",))
    for variant in explanation.variants:
        reward = f"{variant.reward:.4g}"
        if explanation.reward is not None:
            reward += f" ({variant.reward - explanation.reward:+.4g})"
        table.add_row(Text(plain(variant.name)), reward)
    return table
