"""The turns of a scored row: texts, queries, results, rewards, and what is malformed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.text import Text

from rag_rewards.errors import RolloutError, plain, shorten
from rag_rewards.report.reasons import gold_aliases
from rag_rewards.report.rows import Configuration
from rag_rewards.rollout import canonical
from rag_rewards.rows import ScoredRow
from rag_rewards.text.gold_forms import contains_answer, normal_forms
from rag_rewards.text.normalize import squad
from rag_rewards.turns.conversation import QUERY_FIELDS
from rag_rewards.turns.trajectory import Reading, Trajectory, normal_query
from rag_rewards.turns.turn import MEANINGS, Document, Result, Turn

MAX_TURNS = 40
"""Turns that are shown: the first ones and the last one."""
MAX_RESULTS = 10
"""Results of a turn that are shown."""
TURN_CHARACTERS = 4_000
"""Characters of a turn that are shown."""
RESULT_CHARACTERS = 1_000
"""Characters of a result that are shown."""
_TERMINAL_CHARACTERS = 240
"""Characters of a result that a terminal shows."""
_TAG = re.compile(r"</?\w{1,20}>|<\|\w{1,30}\|>")
_COUNTS = frozenset(("queries", "results", "malformed"))
"""The entries of `details["turns"]` that are not components."""


class ResultExplanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result of a search.

    label  label of the document among the documents of the row
    marks  properties: supporting, contains the gold answer
    """

    text: str
    title: str = ""
    label: str = ""
    marks: list[str] = []

    def __rich__(self) -> Text:
        marks = f"({', '.join(self.marks)}) " if self.marks else ""
        return Text.assemble(
            ("result  ", "bold"),
            (self.label and f"[{plain(self.label)}] ", "cyan"),
            (marks, "green"),
            (self.title and f"{plain(self.title)}: ", "bold"),
            plain(shorten(self.text, _TERMINAL_CHARACTERS)),
        )


class TurnExplanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A turn of a rollout.

    number       number of the turn, counted from 1
    repeated     whether each query repeats an earlier one of the rollout; empty if none does
    results      the results, None if the environment returned none
    count        number of results, of which `results` contains the first
    observation  reply of the environment to a turn without results
    malformed    what is wrong with the turn: names with their meanings
    components   values of components for this turn
    """

    number: int
    text: str
    queries: list[str] = []
    repeated: list[bool] = []
    results: list[ResultExplanation] | None = None
    count: int = 0
    observation: str = ""
    malformed: list[str] = []
    reward: float | None = None
    components: dict[str, float] = {}

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        head = Text(f"turn {self.number}", style="bold")
        if self.reward is not None:
            head.append(f"  reward {self.reward:+.4g}", "green" if self.reward > 0 else "")
        for name, value in self.components.items():
            head.append(f"  {plain(name)} {value:.4g}", style="not bold")
        yield head
        for line in self._lines():
            yield Padding(line, (0, 0, 0, 2), expand=False)

    def _lines(self) -> Iterator[RenderableType]:
        """Yield the words of the policy, the queries, what is malformed, and the reply."""
        lines = "\n".join(line for line in plain(self.text).splitlines() if line.strip())
        words = Text(lines or "(no text)")
        words.highlight_regex(_TAG, "dim")
        yield words
        for i, query in enumerate(self.queries):
            is_repeated = i < len(self.repeated) and self.repeated[i]
            repeats = "  (repeats an earlier query)" if is_repeated else ""
            yield Text.assemble(("query  ", "bold cyan"), plain(query), (repeats, "yellow"))
        for fault in self.malformed:
            yield Text.assemble(("malformed  ", "bold red"), (fault, "red"))
        if not self.results and (self.queries or self.results is not None):
            reply = (
                "no results from the environment" if self.results is None else "no document found"
            )
            yield Text(reply, style="yellow")
        yield from self.results or ()
        if (hidden := self.count - len(self.results or ())) > 0:
            yield Text(f"… {hidden:,} more documents", style="dim")
        if self.observation and not self.results:
            text = plain(shorten(self.observation, _TERMINAL_CHARACTERS))
            yield Text.assemble(("observation  ", "dim"), text)


def reading_of(configuration: Configuration) -> Reading:
    """Return how the recipe that scored a row reads turns. Transcripts are always read."""
    settings = configuration.settings
    return Reading(
        dialect=settings.get("dialect", "auto"),
        error_texts=tuple(settings.get("error_texts", ())),
        query_fields=tuple(settings.get("query_fields", QUERY_FIELDS)),
    )


def trajectory_of(row: ScoredRow, configuration: Configuration) -> Trajectory | None:
    """Return the turns of a row, or None for a response of one turn without a query."""
    run = row.trajectory(reading_of(configuration))
    has_turns = row.turns is not None or len(run.turns) > 1 or bool(run.turns[0].queries)
    return run if has_turns else None


def turn_explanations(row: ScoredRow, run: Trajectory) -> list[TurnExplanation]:
    """Return the turns of a row: at most MAX_TURNS, the last one among them."""
    rewards = row.turn_rewards or ()
    details = _details(row)
    marks = _Marks(row)
    repeated = _repetitions(run)
    last = len(run.turns) - 1
    return [
        _explained(
            t,
            turn,
            rewards[t] if t < len(rewards) else None,
            details[t] if t < len(details) else {},
            repeated[t],
            marks,
        )
        for t, turn in enumerate(run.turns)
        if t < MAX_TURNS - 1 or t == last
    ]


def _details(row: ScoredRow) -> list[Mapping[str, Any]]:
    """Return the details of each turn; empty if a recipe recorded none."""
    details = (row.details or {}).get("turns")
    if not isinstance(details, list):
        return []
    return [each if isinstance(each, dict) else {} for each in details]


def _repetitions(run: Trajectory) -> list[list[bool]]:
    """Return whether each query of each turn repeats an earlier query of the rollout."""
    seen: set[str] = set()
    turns = []
    for turn in run.turns:
        flags = []
        for query in map(normal_query, turn.queries):
            flags.append(query in seen)
            seen.add(query)
        turns.append(flags)
    return turns


def _explained(
    t: int,
    turn: Turn,
    reward: float | None,
    details: Mapping[str, Any],
    repeated: list[bool],
    marks: _Marks,
) -> TurnExplanation:
    results = turn.results
    return TurnExplanation(
        number=t + 1,
        text=_cut(turn.text),
        queries=[shorten(query, RESULT_CHARACTERS) for query in turn.queries[:MAX_RESULTS]],
        repeated=repeated[:MAX_RESULTS] if any(repeated) else [],
        results=None if results is None else [marks.shown(r) for r in results[:MAX_RESULTS]],
        count=len(results or ()),
        observation=shorten(turn.observation or "", RESULT_CHARACTERS) if not results else "",
        malformed=[f"{name}: {MEANINGS[name]}" for name in turn.malformed],
        reward=reward,
        components={
            name: float(value)
            for name, value in details.items()
            if name not in _COUNTS and isinstance(value, int | float)
        },
    )


class _Marks:
    """The marks of results: the label and the role of a document, and whether it has the answer."""

    def __init__(self, row: ScoredRow) -> None:
        self.labels: dict[str, str] = {}
        with contextlib.suppress(RolloutError):
            for label, document in zip(row.labels, row.documents or (), strict=True):
                self.labels.setdefault(document_key(document), label)
        self.forms = normal_forms(alias for aliases in gold_aliases(row) for alias in aliases)
        references = map(canonical, row.supporting or ())
        self.supporting = frozenset(row.label_of(each) or each for each in references)

    def shown(self, result: Result) -> ResultExplanation:
        label = self.labels.get(document_key(result))
        marks = []
        names = {label, None if result.id is None else canonical(result.id)}
        if not self.supporting.isdisjoint(names):
            marks.append("supporting")
        text = result.titled_text
        if self.forms and contains_answer(squad(text[:20_000]), self.forms):
            marks.append("contains the gold answer")
        return ResultExplanation(
            shorten(result.text, RESULT_CHARACTERS),
            shorten(result.title or "", 200),
            label or "",
            marks,
        )


def document_key(document: Document) -> str:
    """Return a text that is equal for equal documents: the id, else the title and the text."""
    if document.id is not None:
        return f"id {canonical(document.id)}"
    return f"text {document.title or ''}\n{document.text}"


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= TURN_CHARACTERS else f"{text[:TURN_CHARACTERS]}…"
