"""Citations of the supporting documents: recall and precision (CTRL-RAG)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from rag_rewards.evidence.needs import Need
from rag_rewards.rollout import Rollout, Score
from rag_rewards.text.citations import CITATION, cited_labels, compiled
from rag_rewards.text.normalize import squad
from rag_rewards.text.own_text import without_forgeries
from rag_rewards.text.statements import statements


def citation_recall(cited: Collection[str], supporting: Collection[str]) -> float:
    """(1/|D+|) Σ_{d ∈ D+} 1[d is cited]. Range 0 to 1; 0 where D+ is empty.

    Source: CTRL-RAG, Eq. 2.

    >>> citation_recall({"1", "7"}, {"1", "2"})
    0.5
    """
    wanted = set(supporting)
    return len(wanted & set(cited)) / len(wanted) if wanted else 0.0


def citation_precision(cited: Collection[str], supporting: Collection[str]) -> float:
    """Share of cited documents that are supporting. Range 0 to 1; 0 where nothing is cited."""
    named = set(cited)
    return len(named & set(supporting)) / len(named) if named else 0.0


@dataclass(frozen=True)
class CitationRecall:
    """Share of the supporting documents that the response cites (CTRL-RAG's baseline, Eq. 2).

    `include_thinking` counts markers in the reasoning too, as the equation does. `measure="f1"`
    takes the harmonic mean with the precision, so that citing everything does not pay, and below
    `min_precision` there is nothing. `claims_only` counts a marker only where its statement has
    three words of its own, or a gold answer.
    """

    include_thinking: bool = True
    measure: Literal["recall", "f1"] = "recall"
    min_precision: float = 0.0
    claims_only: bool = False
    pattern: str = CITATION
    name: str = "citation_recall"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        return []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        pattern = compiled(self.pattern)
        return [self._score(rollout, pattern) for rollout in rollouts]

    def _score(self, rollout: Rollout, pattern: re.Pattern[str]) -> Score:
        supporting = rollout.supporting_labels
        response = rollout.parsed
        text = response.text if self.include_thinking else response.visible
        if self.claims_only:
            text = without_forgeries(text)
            claims = (s for s in statements(text, pattern) if _claims(s.text, rollout))
            cited = tuple(dict.fromkeys(label for s in claims for label in s.cited))
        else:
            cited = cited_labels(text, pattern)
        recall = citation_recall(cited, supporting)
        if self.measure == "recall" or not recall:
            return Score(recall, details={"cited": list(cited)})
        precision = citation_precision(cited, supporting)
        if precision < self.min_precision:
            return Score(0.0, details={"cited": list(cited)})
        return Score(2 * precision * recall / (precision + recall), details={"cited": list(cited)})


def _claims(text: str, rollout: Rollout) -> bool:
    """A statement says something: three words or more, or an answer."""
    normal = squad(text)
    if len(normal.split()) >= 3:
        return True
    golds = (squad(a) for aliases in rollout.gold for a in aliases) if rollout.answers else ()
    return any(gold and gold in normal for gold in golds)
