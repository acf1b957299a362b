"""Rows in the schema of this package, with or without a response."""

from __future__ import annotations

from typing import Any

import msgspec

from rag_rewards.datasets.gold import Gold, Problem
from rag_rewards.datasets.read_options import ALL, ReadOptions
from rag_rewards.errors import RolloutError
from rag_rewards.rollout import Document, Rollout


class PackageRow(msgspec.Struct):
    """The fields of a row that describe its question; other fields are ignored."""

    question: str
    documents: list[dict[str, Any]] = []
    answers: Any = None
    id: str | int | None = None
    query_time: str | None = None
    supporting: list[str | int] | None = None
    answer_kind: str | None = None
    answerable: bool | None = None
    out_of_knowledge: bool | None = None


def package_row(row: PackageRow, options: ReadOptions = ALL) -> Gold | Problem:
    """Convert a row of this package. Documents are renumbered, and so is `supporting`."""
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
    documents = (rollout.documents or ())[: options.top]
    is_cut = supporting is not None and any(at >= len(documents) for at in supporting)
    return Gold(
        id="" if rollout.id is None else str(rollout.id),
        question=row.question,
        query_time=rollout.query_time,
        documents=tuple([_unnumbered(document) for document in documents]),
        answers=answers,
        supporting=None if is_cut else supporting,
        unsupported=Problem("a supporting document is not among the first", str(options.top))
        if is_cut
        else Problem("the row has no `supporting`"),
        answer_kind=rollout.answer_kind or "short",
        answerable=None if is_cut else rollout.answerable,
        out_of_knowledge=rollout.out_of_knowledge,
    )


def _unnumbered(document: Document) -> Document:
    return Document(text=document.text, title=document.title, supports=document.supports)
