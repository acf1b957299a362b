"""Rows in the schema of this package, with or without a response."""

from __future__ import annotations

from typing import Any

import msgspec

from rag_rewards.datasets.gold import Gold, Problem
from rag_rewards.datasets.read_options import ALL, ReadOptions
from rag_rewards.errors import RolloutError
from rag_rewards.rollout import Document, Rollout
from rag_rewards.text.sections import SectionStyle, Tags


class PackageRow(msgspec.Struct):
    """The fields of a row that describe its question; other fields are ignored."""

    question: str
    documents: list[dict[str, Any] | str] = []
    answers: Any = None
    id: str | int | None = None
    query_time: str | None = None
    supporting: list[str | int] | None = None
    answer_kind: str | None = None
    answerable: bool | None = None
    out_of_knowledge: bool | None = None
    search_keys: Any = None
    rubrics: Any = None
    rubric: Any = None
    response: Any = None
    response_prefix: str | None = None


WHOLE = "response"
"""The name of the whole response, besides the names of its sections."""


def package_row(row: PackageRow, options: ReadOptions = ALL) -> Gold | Problem:
    """Convert a row of this package. Documents are renumbered, and so is `supporting`.

    With `documents_from`, a part of the response is the only document. It is empty if the response
    has no such part, because a question without evidence is a wrong answer and not a missing one.
    """
    part = options.documents_from
    fields = msgspec.structs.asdict(row) | {"response": row.response if part else ""}
    if part:
        fields |= {"supporting": None, "answerable": None}
        if row.response is None:
            return Problem("no response", f"a response is required, whose {part} is the document")
    try:
        rollout = msgspec.convert(fields, Rollout)
        answers = rollout.gold
        if part:
            document = Document(text=_part_of(rollout, part))
            rollout = msgspec.structs.replace(rollout, documents=(document,))
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
        else Problem(
            "the document is part of a response" if part else "the row has no `supporting`"
        ),
        answer_kind=rollout.answer_kind or "short",
        answerable=None if is_cut else rollout.answerable,
        out_of_knowledge=rollout.out_of_knowledge,
        search_keys=rollout.search_keys,
        rubrics=rollout.rubrics,
        rubric=rollout.rubric,
    )


def _part_of(rollout: Rollout, part: str) -> str:
    """Return a section of the response, or the response without its thinking section.

    A section without a closing tag ends with the response: the generation can stop there.
    """
    if part == WHOLE:
        return rollout.parsed.visible.strip()
    tags = Tags((part,), SectionStyle(tags="unclosed"))
    return rollout.parsed.cut(tags).content.get(part, "").strip()


def _unnumbered(document: Document) -> Document:
    return Document(text=document.text, title=document.title, supports=document.supports)
