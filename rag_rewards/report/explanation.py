"""The explanation of one scored row: its response, its components and its documents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from rag_rewards.errors import RolloutError, shorten
from rag_rewards.evidence.needs import values_without
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.report.component_reasons import component_reason, gold_aliases
from rag_rewards.report.explanation_html import legend_html, response_html, turns_html
from rag_rewards.report.notebook_html import box, folded, html_number, html_table, html_text, line
from rag_rewards.report.reasons import reason
from rag_rewards.report.rows import Configuration, Configurations
from rag_rewards.report.segments import (
    MAX_CHARACTERS,
    Segment,
    contributions,
    counted_tokens,
    document_shades,
    segments,
    token_texts,
)
from rag_rewards.report.turns import (
    MAX_TURNS,
    TurnExplanation,
    document_key,
    trajectory_of,
    turn_explanations,
)
from rag_rewards.rows import ScoredRow
from rag_rewards.text.citations import compiled, markers
from rag_rewards.turns.trajectory import Trajectory


class ComponentExplanation(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"reason": "why", "improvement": "change"},
):
    """A component with its value, the reason for it, and how to increase it."""

    name: str
    value: float | None
    reason: str = ""
    improvement: str = ""

    @property
    def html_cells(self) -> list[str]:
        """The cells of the component in a table of a notebook."""
        texts = [html_text(self.reason), html_text(self.improvement)]
        return [html_text(self.name), html_number(self.value), *texts]


class DocumentExplanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A document of the row.

    effect  nats by which the log-probability of the response is lower without the document
    """

    label: str
    text: str
    title: str = ""
    supporting: bool | None = None
    cited: bool = False
    effect: float | None = None

    @property
    def html_cells(self) -> list[str]:
        """The cells of the document in a table of a notebook."""
        marks = ["supporting"] * bool(self.supporting) + ["cited"] * self.cited
        text = f"{self.title}: {self.text}" if self.title else self.text
        effect = "" if self.effect is None else html_number(self.effect, 3)
        label = html_text(f"[{self.label}] {', '.join(marks)}")
        return [label, effect, html_text(shorten(text, 400))]


class Variant(msgspec.Struct, frozen=True, rename={"name": "what"}):
    """A response that differs from that of the row in one respect, and its reward."""

    name: str
    reward: float
    response: str


class Explanation(
    msgspec.Struct,
    kw_only=True,
    omit_defaults=True,
    rename={"components": "parts", "variants": "changes"},
):
    """Everything that is shown of one scored row.

    tokens    how the texts of the tokens were determined
    shades    contribution of each document to each segment
    turns     turns of a search agent
    dialect   how the agent writes its actions; empty for a response of one turn
    searches  number of its searches
    variants  variants of the response with another reward
    """

    id: str
    reward: float | None
    group: str = ""
    question: str = ""
    step: int | None = None
    correct: float | None = None
    advantage: float | None = None
    reason: str = ""
    equation: str = ""
    signature: str = ""
    gold: list[list[str]] = []
    segments: list[Segment] = []
    tokens: str = ""
    shades: dict[str, list[float | None]] = {}
    components: list[ComponentExplanation] = []
    passages: list[DocumentExplanation] = []
    variants: list[Variant] = []
    turns: list[TurnExplanation] = []
    dialect: str = ""
    searches: int | None = None
    notes: list[str] = []

    @property
    def has_response(self) -> bool:
        """Whether the response is shown besides the turns: with contributions of documents."""
        return not self.turns or self.has_colors

    @property
    def has_colors(self) -> bool:
        """Whether the contributions of documents to the words of the response are known."""
        return any(each.value is not None for each in self.segments)

    def _repr_html_(self) -> str:
        """Return the explanation for notebooks."""
        return box(self.html_parts())

    def __repr__(self) -> str:
        return f"<Explanation {self.id!r}: reward {self.reward}, {self.reason}>"

    def html_parts(self, *, in_group: bool = False) -> Iterator[str]:
        """Yield the parts of the explanation as HTML, from top to bottom.

        `in_group` leaves out what all rollouts of a group have in common.
        """
        reward = "unscored" if self.reward is None else f"reward {html_number(self.reward)}"
        facts = [f"<b>{html_text(self.id)}</b>", f"<b>{reward}</b>"]
        if self.advantage is not None:
            facts.append(f"advantage {html_number(self.advantage, 3)} in its group")
        if self.correct is not None:
            facts.append(f"correct {html_number(self.correct)}")
        yield line(" · ".join(facts))
        yield line(html_text(self.reason))
        if not in_group:
            yield from self.html_task()
        yield from turns_html(self.turns)
        if self.has_response:
            yield response_html(self.segments)
        if self.has_colors:
            yield legend_html(self.tokens)
        for note in self.notes:
            yield line(html_text(note), soft=True)
        yield from self._html_tables()
        if self.signature and not in_group:
            yield line(f"<code>{html_text(self.signature)}</code>", soft=True)

    def html_task(self) -> Iterator[str]:
        """Yield the question, the gold answers and the equation of the reward as HTML."""
        if self.question:
            yield line(f"<b>question</b> {html_text(self.question)}")
        for aliases in self.gold:
            yield line(f"<b>gold</b> {html_text(' | '.join(aliases))}")
        if self.equation:
            yield line(html_text(f"reward = {self.equation}"), soft=True)

    def _html_tables(self) -> Iterator[str]:
        head = ["component", "value", "reason", "how to increase it"]
        yield html_table(head, [each.html_cells for each in self.components], ["value"])
        if self.passages:
            ordered = sorted(self.passages, key=lambda each: -(each.effect or 0.0))
            rows = [each.html_cells for each in ordered]
            table = html_table(["document", "nats", "text"], rows, ["nats"])
            yield folded(f"documents ({len(rows)})", table)
        if self.variants:
            rows = [[html_text(each.name), html_number(each.reward)] for each in self.variants]
            table = html_table(["variant", "reward"], rows, ["reward"])
            yield folded(f"variants of the response ({len(rows)})", table)


def explain(
    row: ScoredRow,
    *,
    no_spread: str = "",
    advantage: float | None = None,
    tokenizer: Tokenizer | None = None,
    equation: str = "",
    each_document: bool = False,
    configuration: Configuration | None = None,
) -> Explanation:
    """Explain a scored row, without variants of its response.

    `no_spread` is the reason for rewards of 0 in the group. `each_document` adds the contribution
    of each document to each segment. `configuration` is the
    recipe with its settings that scored the row; by default it is read from the signature.
    """
    scored_with = configuration or Configurations().of(row)
    values, labels = contributions(row, scored_with)
    texts, method = token_texts(row, len(values), tokenizer) if values else ([], "")
    run = trajectory_of(row, scored_with)
    return Explanation(
        id=str(row.id),
        reward=row.reward,
        group=row.key or "",
        question=row.question or "",
        step=row.step,
        correct=row.correct,
        advantage=advantage,
        reason=reason(row, row.score, no_spread),
        equation=equation,
        signature=row.signature or "",
        gold=gold_aliases(row),
        segments=segments(row.parsed.text[:MAX_CHARACTERS], texts, values),
        tokens=method,
        shades=document_shades(row, texts, scored_with) if each_document else {},
        components=[
            ComponentExplanation(name, value, *component_reason(row, name, value, scored_with))
            for name, value in (row.components or {}).items()
        ],
        passages=_other_passages(row, run, passages(row, scored_with)),
        turns=turn_explanations(row, run) if run else [],
        dialect=run.dialect.name if run else "",
        searches=run.searches if run else None,
        notes=[*_notes(row, labels, scored_with), *_turn_notes(run)],
    )


def _other_passages(
    row: ScoredRow, run: Trajectory | None, shown: list[DocumentExplanation]
) -> list[DocumentExplanation]:
    """Return the documents with an effect, and those that are not among the results of turns."""
    results = {document_key(result) for result in run.results} if run else set()
    return [
        passage
        for passage, document in zip(shown, row.documents or (), strict=True)
        if passage.effect is not None or document_key(document) not in results
    ]


def _turn_notes(run: Trajectory | None) -> list[str]:
    notes = []
    if run and len(run.turns) > MAX_TURNS:
        notes.append(f"{MAX_TURNS} of {len(run.turns):,} turns are shown, the last one among them")
    if run and not run.trusted:
        notes.append(
            "the results are from a transcript, in which the policy could have forged them"
        )
    return notes


def passages(row: ScoredRow, configuration: Configuration) -> list[DocumentExplanation]:
    """Return the documents of a row, each with its effect on the response."""
    try:
        labels = row.labels
        supporting = set(row.supporting_labels) if row.supporting is not None else None
    except RolloutError:
        labels, supporting = tuple(map(str, range(1, len(row.documents or ()) + 1))), None
    cited = {label for marker in markers(row.parsed.text, compiled()) for label in marker.labels}
    relevant = (row.details or {}).get("relevance")
    cited |= set(relevant) if isinstance(relevant, list) else set()
    start, end = counted_tokens(row, configuration)
    full = math.fsum(row.logprobs.full[start:end]) if row.logprobs else 0.0
    result = []
    for label, document in zip(labels, row.documents or (), strict=True):
        values = values_without(row, label)
        result.append(
            DocumentExplanation(
                label=label,
                text=_shown_text(document.text),
                title=document.title or "",
                supporting=None if supporting is None else label in supporting,
                cited=label in cited,
                effect=None if values is None else round(full - math.fsum(values[start:end]), 3),
            )
        )
    return result


def _shown_text(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]} … ({len(text):,} characters)"


def _notes(row: ScoredRow, labels: Sequence[str], configuration: Configuration) -> list[str]:
    """Return remarks about the row; `labels` are documents that can be left out, d* first."""
    settings = configuration.settings
    notes = []
    if row.finish_reason == "length":
        notes.append("the response was cut at the length limit")
    if row.reward is None:
        notes.append(f"unscored: {row.error_text}" if row.error_text else "unscored")
    if (length := len(row.parsed.text)) > MAX_CHARACTERS:
        notes.append(f"the first {MAX_CHARACTERS:,} of {length:,} characters are shown")
    if len(labels) > 1 and settings.get("loo") != "mean":
        notes.append(f"colors show the contribution of document {labels[0]}, which is the largest")
    if settings.get("span") == "answer" and labels:
        notes.append("the recipe does not count the thinking: span=answer")
    if row.response_prefix:
        notes.append("the response begins with text of the prompt template")
    return notes
