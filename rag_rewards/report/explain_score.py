"""The explanation of one scored row, from its score: without another scoring."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rag_rewards.errors import RolloutError
from rag_rewards.evidence.needs import values_without
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.report.explanation import (
    ComponentExplanation,
    DocumentExplanation,
    Explanation,
)
from rag_rewards.report.reasons import component_reason, gold_aliases, reason
from rag_rewards.report.rows import Configuration, Configurations
from rag_rewards.report.segments import (
    MAX_CHARACTERS,
    contributions,
    counted_tokens,
    document_shades,
    segments,
    token_texts,
)
from rag_rewards.report.turns import (
    MAX_TURNS,
    document_key,
    trajectory_of,
    turn_explanations,
)
from rag_rewards.rows import ScoredRow
from rag_rewards.text.citations import compiled, markers
from rag_rewards.turns.trajectory import Trajectory


def explain_score(
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
    of each document to each segment. `configuration` is the recipe with its settings that scored
    the row; by default it is read from the signature.
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
