"""Citations: recall and precision (CTRL-RAG), and those of statements (Ground-GRPO)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec

from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.correctness import f1_of
from rag_rewards.rollout import Document, Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.citations import (
    CITATION,
    PATTERN,
    cited_labels,
    compiled,
    split_valid,
    strip_markers,
)
from rag_rewards.text.hidden import is_unreadable, shown
from rag_rewards.text.normalize import squad
from rag_rewards.text.statements import Statement, statements
from rag_rewards.text.thinking import without_forgeries, without_preparation

_MANY_COPIES = 3  # of whole documents in one answer


def citation_recall(cited: Collection[str], supporting: Collection[str]) -> float:
    """Return the share of the supporting documents D+ that are cited.

    (1/|D+|) Σ_{d ∈ D+} 1[d is cited]. Range 0 to 1; 0 if D+ is empty. Source: CTRL-RAG, Eq. 2.

    >>> citation_recall({"1", "7"}, {"1", "2"})
    0.5
    """
    gold = set(supporting)
    return len(gold & set(cited)) / len(gold) if gold else 0.0


def citation_precision(cited: Collection[str], supporting: Collection[str]) -> float:
    """Return the share of the cited documents that are supporting, 0 if nothing is cited.

    Range 0 to 1.

    >>> citation_precision({"1", "7"}, {"1", "2"})
    0.5
    """
    labels = set(cited)
    return len(labels & set(supporting)) / len(labels) if labels else 0.0


def is_sufficient(
    cited: Sequence[str], entails: Callable[[Sequence[str]], bool], *, minimal: bool = False
) -> bool:
    """Return whether the cited documents together entail a statement.

    With `minimal`, no cited document may be superfluous: without any one of them, the others must
    not entail the statement. Source: Ground-GRPO, Eq. 2 and introduction ("minimal yet
    sufficient").
    """
    if not cited or not entails(cited):
        return False
    if not minimal or len(cited) == 1:
        return True
    return not any(entails([c for c in cited if c != left_out]) for left_out in cited)


def document_of(rollout: Rollout, label: str) -> Document:
    """Return the document with this label."""
    return (rollout.documents or ())[rollout.labels.index(label)]


def premise_of(rollout: Rollout, labels: Sequence[str]) -> str:
    """Return the cited documents as one premise, in the order of the citations."""
    return "\n".join(document_of(rollout, label).premise for label in labels)


def copies_documents(rollout: Rollout, answer: str, pattern: re.Pattern[str]) -> bool:
    """Return whether an answer contains all documents, or three, as a whole."""
    texts = [document.text.strip().rstrip(".") for document in rollout.documents or ()]
    if len(texts) < 2:
        return False
    bare = strip_markers(answer, pattern)
    return sum(bool(text) and text in bare for text in texts) >= min(_MANY_COPIES, len(texts))


@dataclass(frozen=True)
@check_choices
class CitationRecall(RolloutReward):
    """The share of the supporting documents that a response cites. Range 0 to 1.

    Raises DataError for a row without `supporting`. Source: CTRL-RAG, Eq. 2.
    """

    include_thinking: Annotated[
        bool, about("count the markers in the thinking section too", "CTRL-RAG, Eq. 2")
    ] = True
    measure: Annotated[
        Literal["recall", "f1"],
        about(
            "recall of the cited documents, or their F1, which is lower if other documents "
            "are cited",
            "CTRL-RAG, Eq. 2",
        ),
    ] = "recall"
    min_precision: Annotated[
        float,
        about(
            "with measure=f1, minimum share of supporting documents among the cited documents",
            "CTRL-RAG, Eq. 2: none",
            ge=0,
            le=1,
        ),
    ] = 0.0
    claims_only: Annotated[
        bool,
        about(
            "count a marker only if its statement has at least three words or a gold answer, and "
            "if a reader sees it as a part of the answer",
            "ours: off, as published",
        ),
    ] = False
    pattern: Annotated[str, about(*PATTERN)] = CITATION
    name: str = "citation_recall"
    scope: Literal["rollout"] = "rollout"

    @cached_property
    def _markers(self) -> re.Pattern[str]:
        return compiled(self.pattern)

    def score(self, rollout: Rollout) -> Score:
        pattern, supporting = self._markers, rollout.supporting_labels
        response = rollout.parsed
        count = len(rollout.documents or ()) or None
        text = response.text if self.include_thinking else response.visible
        if self.claims_only:
            text = without_forgeries(shown(without_preparation(text)))
            claims = (
                s for s in statements(text, pattern, documents=count) if _is_claim(s.text, rollout)
            )
            cited = tuple(dict.fromkeys(label for s in claims for label in s.cited))
        else:
            cited = cited_labels(text, pattern, count)
        recall = citation_recall(cited, supporting)
        if self.measure == "recall" or not recall:
            return Score(recall, details={"cited": list(cited)})
        precision = citation_precision(cited, supporting)
        if precision < self.min_precision:
            return Score(0.0, details={"cited": list(cited)})
        return Score(f1_of(precision, recall), details={"cited": list(cited)})


def _is_claim(text: str, rollout: Rollout) -> bool:
    """Return whether a statement has three words or more, or contains a gold answer."""
    normal = squad(text)
    if len(normal.split()) >= 3:
        return True
    golds = (squad(a) for aliases in rollout.gold for a in aliases) if rollout.answers else ()
    return any(gold and gold in normal for gold in golds)


class CheckedStatement(msgspec.Struct, frozen=True, gc=False):
    """A statement of the answer after it was compared with the gold answers and its citations.

    answers     indices of the required answers that it contains
    sufficient  whether its citations are sufficient; None if it contains no required answer
    """

    statement: Statement
    answers: tuple[int, ...]
    sufficient: bool | None


def stating_answer(checked: Sequence[CheckedStatement], answer: int) -> list[CheckedStatement]:
    """Return the statements that contain a required answer."""
    return [item for item in checked if answer in item.answers]


def without_rivals(
    rollout: Rollout, checked: Sequence[CheckedStatement], answer: str, pattern: re.Pattern[str]
) -> list[CheckedStatement]:
    """Return statements of which none states an answer that another one states otherwise.

    An answer with text that a reader cannot see states nothing, nor does one that copies documents.
    """
    if not any(item.sufficient for item in checked):
        return list(checked)  # no answer counts
    from rag_rewards.matching.mentions import rivals  # few recipes need it

    texts = [item.statement.text for item in checked]
    has_rival = rivals(texts, rollout.gold, rollout.question or "")
    if is_unreadable(answer) or copies_documents(rollout, answer, pattern):
        has_rival = [True] * len(texts)
    return [
        msgspec.structs.replace(item, answers=()) if is_rivaled else item
        for item, is_rivaled in zip(checked, has_rival, strict=True)
    ]


def statement_details(item: CheckedStatement, labels: Collection[str]) -> dict[str, Any]:
    """Return what a score states about a statement."""
    valid, invalid = split_valid(item.statement.cited, labels)
    detail: dict[str, Any] = {
        "text": item.statement.text,
        "cited": list(valid),
        "answers": len(item.answers),
    }
    if item.sufficient is not None:
        detail["supported"] = item.sufficient
    if invalid:
        detail["invalid"] = list(invalid)
    return detail
