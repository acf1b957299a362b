"""Sections of an explanation as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rag_rewards.errors import shorten
from rag_rewards.report.notebook_html import LINE, folded, html_number, html_text, line
from rag_rewards.report.segments import Segment
from rag_rewards.report.turns import ResultExplanation, TurnExplanation

FULL_COLOR = 2.0
"""Nats at which a word has the full color."""
MIN_COLOR = 0.05
"""Nats below which a word has no color."""
_GREEN, _RED = "60,180,100", "235,90,80"
_SHOWN_CHARACTERS = 400


def response_html(segments: Sequence[Segment]) -> str:
    """Return the response. Green words are more likely with the documents, red words less."""
    style = f"white-space:pre-wrap;border:1px solid {LINE};border-radius:.4em;padding:.4em .6em"
    pieces = "".join(map(_segment, segments)) or "<i>empty</i>"
    return f'<div style="{style};margin:.25em 0;unicode-bidi:isolate">{pieces}</div>'


def _segment(segment: Segment) -> str:
    styles = {"tag": ["opacity:.6"], "cite": ["font-weight:600"]}.get(segment.kind, [])
    if segment.value is not None and abs(segment.value) >= MIN_COLOR:
        styles = [*styles, f"background:{_color(segment.value)}", "border-radius:.2em"]
    text = html_text(segment.text)
    return f'<span style="{";".join(styles)}">{text}</span>' if styles else text


def _color(nats: float) -> str:
    share = 0.15 + 0.55 * min(abs(nats) / FULL_COLOR, 1.0)
    return f"rgba({_GREEN if nats > 0 else _RED},{share:.2f})"


def legend_html(tokens: str) -> str:
    """Return the meaning of the colors."""
    more = f'<span style="background:{_color(FULL_COLOR)}">green</span>'
    less = f'<span style="background:{_color(-FULL_COLOR)}">red</span>'
    text = f"{more}: more likely with the documents, {less}: less likely; full color at "
    return line(f"{text}{FULL_COLOR:g} nats; {html_text(tokens)}", soft=True)


def turns_html(turns: Sequence[TurnExplanation]) -> Iterator[str]:
    """Yield the turns of a search agent. The texts of a turn are visible after a click."""
    for turn in turns:
        title = f"<b>turn {turn.number}</b>"
        if turn.reward is not None:
            title += f" reward {html_number(turn.reward)}"
        for name, value in turn.components.items():
            title += f" · {html_text(name)} {html_number(value)}"
        if turn.queries:
            title += f" · {html_text(shorten(', '.join(turn.queries), 80))}"
        yield folded(title, "".join(_turn_lines(turn)))


def _turn_lines(turn: TurnExplanation) -> Iterator[str]:
    yield line(html_text(turn.text), preformatted=True)
    for i, query in enumerate(turn.queries):
        is_repeated = i < len(turn.repeated) and turn.repeated[i]
        remark = " (repeats an earlier query)" if is_repeated else ""
        yield line(f"<b>query</b> {html_text(query)}{remark}")
    for fault in turn.malformed:
        yield line(f"<b>malformed</b> {html_text(fault)}")
    for result in turn.results or ():
        yield line(f"<b>result</b> {html_text(_result(result))}")
    if (hidden := turn.count - len(turn.results or ())) > 0:
        yield line(f"… {hidden:,} more documents", soft=True)
    if turn.observation and not turn.results:
        text = html_text(shorten(turn.observation, _SHOWN_CHARACTERS))
        yield line(f"observation: {text}", soft=True)


def _result(result: ResultExplanation) -> str:
    label = f"[{result.label}] " if result.label else ""
    marks = f" ({', '.join(result.marks)})" if result.marks else ""
    text = f"{result.title}: {result.text}" if result.title else result.text
    return f"{label}{shorten(text, _SHOWN_CHARACTERS)}{marks}"
