"""ASQA, QAMPARI and ELI5 with retrieved documents, as ALCE or Trust-Align publish them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rag_rewards.datasets.gold import Gold, Kind, Problem, supporting_of, texts
from rag_rewards.rollout import Document

NO_LABELS = "no answers_found on its documents"


class Retrieved(msgspec.Struct):
    """A document; `answers_found` has 1 for each gold answer that it proves (Trust-Align)."""

    text: str
    title: str | None = None
    answers_found: list[int | bool] | None = None


class Pair(msgspec.Struct):
    short_answers: list[str]


class AlceRow(msgspec.Struct):
    """Gold answers stand in `qa_pairs` (ASQA), `claims` (ELI5), or `answers` (all others)."""

    question: str
    docs: list[Retrieved]
    qa_pairs: list[Pair] | None = None
    claims: list[str] | None = None
    answers: list[list[str] | str] | None = None
    sample_id: str | int | None = None
    id: str | int | None = None


def asqa(row: AlceRow, top: int | None = None) -> Gold | Problem:
    """ASQA: an ambiguous question; the short answer to each of its readings is required."""
    if row.qa_pairs is None:
        return _gold(row, _listed(row), "short", top)
    return _gold(row, [pair.short_answers for pair in row.qa_pairs], "short", top)


def qampari(row: AlceRow, top: int | None = None) -> Gold | Problem:
    """QAMPARI: a list of answers."""
    return _gold(row, _listed(row), "list", top)


def eli5(row: AlceRow, top: int | None = None) -> Gold | Problem:
    """ELI5: claims that a long answer should make."""
    if row.claims is None:
        return _gold(row, _listed(row), "claims", top)
    return _gold(row, [[claim] for claim in row.claims], "claims", top)


def _listed(row: AlceRow) -> list[list[str]]:
    return [[each] if isinstance(each, str) else each for each in row.answers or ()]


def _gold(
    row: AlceRow, answers: Sequence[Sequence[str]], kind: Kind, top: int | None
) -> Gold | Problem:
    required = tuple(texts(aliases) for aliases in answers)
    documents = []
    for at, document in enumerate(row.docs[:top]):
        found = document.answers_found
        if found is not None and len(found) != len(required):
            return Problem(
                "answers_found does not fit the answers",
                f"docs[{at}]: {len(found)} for {len(required)} answers",
            )
        supports = None if found is None else tuple(map(bool, found))
        documents.append(Document(title=document.title, text=document.text, supports=supports))
    known = all(document.supports is not None for document in documents)
    if not known:
        documents = [msgspec.structs.replace(document, supports=None) for document in documents]
    supporting = supporting_of(documents) if known else None
    name = row.sample_id if row.sample_id is not None else row.id
    return Gold(
        id="" if name is None else str(name),
        question=row.question,
        documents=tuple(documents),
        answers=required,
        answer_kind=kind,
        supporting=supporting,
        unsupported=None if known else Problem(NO_LABELS),
        answerable=bool(supporting) if known else None,
    )
