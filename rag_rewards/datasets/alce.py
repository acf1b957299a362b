"""ASQA, QAMPARI, ELI5 and ExpertQA with documents, in the files of ALCE and Trust-Align."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rag_rewards.datasets.gold import Gold, Kind, Problem, supporting_of, texts
from rag_rewards.datasets.read_options import ALL, ReadOptions
from rag_rewards.rollout import Document

NO_LABELS = "the documents have no answers_found"


class AlceDocument(msgspec.Struct):
    """A document. `answers_found` has a 1 for each gold answer that it supports (Trust-Align)."""

    text: str
    title: str | None = None
    answers_found: list[int | bool] | None = None


class QaPair(msgspec.Struct):
    """One interpretation of an ambiguous question, with its short answers."""

    short_answers: list[str]


class AlceRow(msgspec.Struct):
    """A row. The gold answers are in `qa_pairs` (ASQA), `claims` (ELI5) or `answers` (others)."""

    question: str
    docs: list[AlceDocument]
    qa_pairs: list[QaPair] | None = None
    claims: list[str] | None = None
    answers: list[list[str] | str] | None = None
    sample_id: str | int | None = None
    id: str | int | None = None


def asqa(row: AlceRow, options: ReadOptions = ALL) -> Gold | Problem:
    """Convert a row of ASQA. Each interpretation of the question has a required short answer."""
    if row.qa_pairs is None:
        return _gold(row, _listed(row), "short", options)
    return _gold(row, [pair.short_answers for pair in row.qa_pairs], "short", options)


def qampari(row: AlceRow, options: ReadOptions = ALL) -> Gold | Problem:
    """Convert a row of QAMPARI, whose answer is a list."""
    return _gold(row, _listed(row), "list", options)


def eli5(row: AlceRow, options: ReadOptions = ALL) -> Gold | Problem:
    """Convert a row of ELI5 or ExpertQA, whose gold data are claims of a long answer."""
    if row.claims is None:
        return _gold(row, _listed(row), "claims", options)
    return _gold(row, [[claim] for claim in row.claims], "claims", options)


def _listed(row: AlceRow) -> list[list[str]]:
    return [[answer] if isinstance(answer, str) else answer for answer in row.answers or ()]


def _gold(
    row: AlceRow, answers: Sequence[Sequence[str]], kind: Kind, options: ReadOptions
) -> Gold | Problem:
    required = tuple(texts(aliases) for aliases in answers)
    documents = []
    for at, document in enumerate(row.docs[: options.top]):
        bits = document.answers_found
        if bits is not None and len(bits) != len(required):
            return Problem(
                "the length of answers_found is not the number of answers",
                f"docs[{at}]: {len(bits)} for {len(required)} answers",
            )
        supports = None if bits is None else tuple(map(bool, bits))
        documents.append(Document(title=document.title, text=document.text, supports=supports))
    is_annotated = all(document.supports is not None for document in documents)
    if not is_annotated:
        documents = [msgspec.structs.replace(document, supports=None) for document in documents]
    supporting = supporting_of(documents) if is_annotated else None
    name = row.sample_id if row.sample_id is not None else row.id
    return Gold(
        id="" if name is None else str(name),
        question=row.question,
        documents=tuple(documents),
        answers=required,
        answer_kind=kind,
        supporting=supporting,
        unsupported=None if is_annotated else Problem(NO_LABELS),
        answerable=bool(supporting) if is_annotated else None,
    )
