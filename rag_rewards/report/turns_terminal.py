"""The turns of an explanation on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from rag_rewards.errors import plain, shorten
from rag_rewards.report.explanation import Explanation
from rag_rewards.report.turns import ResultExplanation, TurnExplanation

SHOWN_CHARACTERS = 240
"""Characters of a result that are shown."""
_INDENT = (0, 0, 0, 2)
_TAG = re.compile(r"</?\w{1,20}>|<\|\w{1,30}\|>")


def turn_parts(explanation: Explanation) -> Iterator[RenderableType]:
    """Yield the turns of an explanation from top to bottom. There are none for one response."""
    if not explanation.turns:
        return
    searches = f"{explanation.searches} {'search' if explanation.searches == 1 else 'searches'}"
    yield Text.assemble(
        ("\nturns", "bold"), (f"  dialect {explanation.dialect}, {searches}", "dim")
    )
    previous = 0
    for turn in explanation.turns:
        if turn.number > previous + 1:
            yield Text(f"… {turn.number - previous - 1:,} turns …", style="dim")
        previous = turn.number
        yield _head(turn)
        for line in (_words(turn.text), *_lines(turn)):
            yield Padding(line, _INDENT, expand=False)


def _head(turn: TurnExplanation) -> Text:
    head = Text(f"turn {turn.number}", style="bold")
    if turn.reward is not None:
        head.append(f"  reward {turn.reward:+.4g}", style="bold green" if turn.reward > 0 else "")
    for name, value in turn.components.items():
        head.append(f"  {plain(name)} {value:.4g}", style="not bold")
    return head


def _words(text: str) -> Text:
    """Return the words of the policy without blank lines, and with dim tags."""
    lines = "\n".join(line for line in plain(text).splitlines() if line.strip())
    words = Text(lines or "(no text)")
    words.highlight_regex(_TAG, "dim")
    return words


def _lines(turn: TurnExplanation) -> Iterator[Text]:
    """Yield the queries, what is malformed, and the reply of the environment."""
    for i, query in enumerate(turn.queries):
        is_repeated = i < len(turn.repeated) and turn.repeated[i]
        repeats = "  (repeats an earlier query)" if is_repeated else ""
        yield Text.assemble(("query  ", "bold cyan"), plain(query), (repeats, "yellow"))
    for fault in turn.malformed:
        yield Text.assemble(("malformed  ", "bold red"), (fault, "red"))
    yield from _replies(turn)


def _replies(turn: TurnExplanation) -> Iterator[Text]:
    """Yield the lines of the reply of the environment."""
    if turn.results is None:
        if turn.queries:
            yield Text("no results from the environment", style="yellow")
    elif not turn.results:
        yield Text("no document found", style="yellow")
    for result in turn.results or ():
        yield _result(result)
    if (hidden := turn.count - len(turn.results or ())) > 0:
        yield Text(f"… {hidden:,} more documents", style="dim")
    if turn.observation and not turn.results:
        yield Text.assemble(("observation  ", "dim"), plain(shorten(turn.observation, 240)))


def _result(result: ResultExplanation) -> Text:
    line = Text.assemble(("result  ", "bold"), (result.label and f"[{result.label}] ", "cyan"))
    if result.marks:
        line.append(f"({', '.join(result.marks)}) ", style="green")
    if result.title:
        line.append(f"{plain(result.title)}: ", style="bold")
    return line.append(plain(shorten(result.text, SHOWN_CHARACTERS)))
