"""Questions in DPR's forms: retrieved passages or retriever training data.

Passages are annotated with `isgold`, or with whether they contain an answer (`has_answer` or
`hasanswer`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rag_rewards.datasets.gold import Gold, Problem, texts
from rag_rewards.datasets.read_options import ALL, ReadOptions
from rag_rewards.rollout import Document

NO_MARKS = "the passages have neither has_answer nor isgold"


class DprPassage(msgspec.Struct):
    """A passage with its annotations."""

    text: str
    title: str | None = None
    has_answer: bool | None = None
    hasanswer: bool | None = None
    isgold: bool | None = None

    @property
    def answers(self) -> bool | None:
        """Whether it contains an answer; None if that is unknown."""
        return self.hasanswer if self.has_answer is None else self.has_answer


class DprRow(msgspec.Struct):
    """A row. `ctxs` are retrieved passages; the other lists are training data of a retriever."""

    question: str
    answers: list[str]
    ctxs: list[DprPassage] | None = None
    positive_ctxs: list[DprPassage] = []
    hard_negative_ctxs: list[DprPassage] = []
    negative_ctxs: list[DprPassage] = []
    id: str | int | None = None


def dpr(row: DprRow, options: ReadOptions = ALL) -> Gold:
    """Convert a row of DPR.

    The documents of a row of retriever training data are the first positive passage, then the hard
    negatives, then the other negatives.
    """
    if row.ctxs is not None:
        passages = row.ctxs[: options.top]
        supporting = _marked(passages)
    else:
        negatives = [*row.hard_negative_ctxs, *row.negative_ctxs]
        passages = [*row.positive_ctxs[:1], *negatives][: options.top]
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


def _marked(passages: Sequence[DprPassage]) -> tuple[int, ...] | None:
    """The gold passages, otherwise those that contain an answer. None without annotations."""
    gold = tuple(at for at, passage in enumerate(passages) if passage.isgold)
    if gold:
        return gold
    marks = [passage.answers for passage in passages]
    if not marks or None in marks:
        return None
    return tuple(at for at, mark in enumerate(marks) if mark)
