"""Statements of an answer after they were compared with the gold answers and their citations."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from rag_rewards.matching.mentions import rivals
from rag_rewards.rewards.citation import copies_documents
from rag_rewards.rollout import Rollout
from rag_rewards.text.citations import split_valid
from rag_rewards.text.hidden import is_unreadable
from rag_rewards.text.statements import Statement


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
