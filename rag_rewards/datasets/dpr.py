"""Natural Questions and TriviaQA in DPR's forms: retrieved passages, or a retriever's training set.

Passages are marked by `isgold`, or by whether they hold an answer (`has_answer`, `hasanswer`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rag_rewards.datasets.gold import Gold, Problem, texts
from rag_rewards.rollout import Document

NO_MARKS = "no has_answer or isgold on its passages"


class Passage(msgspec.Struct):
    text: str
    title: str | None = None
    has_answer: bool | None = None
    hasanswer: bool | None = None
    isgold: bool | None = None

    @property
    def answers(self) -> bool | None:
        """Whether it holds an answer."""
        return self.hasanswer if self.has_answer is None else self.has_answer


class DprRow(msgspec.Struct):
    """Retrieved passages stand in `ctxs`, a retriever's training passages in the other lists."""

    question: str
    answers: list[str]
    ctxs: list[Passage] | None = None
    positive_ctxs: list[Passage] = []
    hard_negative_ctxs: list[Passage] = []
    negative_ctxs: list[Passage] = []
    id: str | int | None = None


def dpr(row: DprRow, top: int | None = None) -> Gold:
    """A question with passages.

    Of a retriever's training set: the first positive passage, then hard negatives, then others.
    """
    if row.ctxs is not None:
        passages = row.ctxs[:top]
        supporting = _marked(passages)
    else:
        others = [*row.hard_negative_ctxs, *row.negative_ctxs]
        passages = [*row.positive_ctxs[:1], *others][:top]
        supporting = (0,) if row.positive_ctxs and passages else None
    return Gold(
        id="" if row.id is None else str(row.id),
        question=row.question,
        documents=tuple([Document(title=p.title, text=p.text) for p in passages]),
        answers=(texts(row.answers),),
        supporting=supporting,
        unsupported=None if supporting is not None else Problem(NO_MARKS),
        answerable=None if supporting is None else bool(supporting),
        ranked=row.ctxs is not None,
    )


def _marked(passages: Sequence[Passage]) -> tuple[int, ...] | None:
    """Passages that are gold, else those that hold an answer; None where nothing is marked."""
    gold = tuple(at for at, passage in enumerate(passages) if passage.isgold)
    if gold:
        return gold
    marks = [passage.answers for passage in passages]
    if not marks or None in marks:
        return None
    return tuple(at for at, mark in enumerate(marks) if mark)
