"""Rows of this package's own schema: documents, answers and what else is known."""

from __future__ import annotations

from typing import Any

import msgspec

from rag_rewards.datasets.gold import Gold, Problem
from rag_rewards.errors import RolloutError
from rag_rewards.rollout import Document, Rollout


class OwnRow(msgspec.Struct):
    """A row before it is known whether it has a response; other fields are not read."""

    question: str
    documents: list[dict[str, Any]]
    answers: Any = None
    id: str | int | None = None
    query_time: str | None = None
    supporting: list[str | int] | None = None
    answer_kind: str | None = None
    answerable: bool | None = None
    out_of_knowledge: bool | None = None


def own(row: OwnRow, top: int | None = None) -> Gold | Problem:
    """A row of ours. Documents are numbered anew, `supporting` with them."""
    fields = msgspec.structs.asdict(row) | {"response": ""}
    try:
        rollout = msgspec.convert(fields, Rollout)
        answers = rollout.gold
        supporting = None
        if rollout.supporting is not None:
            labels = rollout.supporting_labels
            supporting = tuple(sorted(rollout.labels.index(label) for label in labels))
    except (RolloutError, msgspec.ValidationError) as error:
        return Problem("broken row", str(error))
    documents = (rollout.documents or ())[:top]
    lost = supporting is not None and any(at >= len(documents) for at in supporting)
    return Gold(
        id="" if rollout.id is None else str(rollout.id),
        question=row.question,
        query_time=rollout.query_time,
        documents=tuple([_unnumbered(document) for document in documents]),
        answers=answers,
        supporting=None if lost else supporting,
        unsupported=Problem("a supporting document is beyond the first", str(top))
        if lost
        else Problem("no `supporting` in the row"),
        answer_kind=rollout.answer_kind or "short",
        answerable=None if lost else rollout.answerable,
        out_of_knowledge=rollout.out_of_knowledge,
    )


def _unnumbered(document: Document) -> Document:
    return Document(text=document.text, title=document.title, supports=document.supports)
