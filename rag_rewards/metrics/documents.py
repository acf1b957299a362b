"""Which documents a response names: relevance, citation; and what it took from them (LEAR)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from rag_rewards.errors import DataError
from rag_rewards.metrics.answers import Gauge, asks_nothing
from rag_rewards.metrics.metric import Parts, Unit, Values, identity, ratio
from rag_rewards.metrics.reading import Common
from rag_rewards.rewards.answer import Required, substring_match
from rag_rewards.rewards.citation import citation_precision, citation_recall
from rag_rewards.rewards.document_relevance import relevance_ids
from rag_rewards.rewards.evidence import words
from rag_rewards.rollout import GoldForms, Rollout, canonical
from rag_rewards.rows import ScoredRow
from rag_rewards.text.citations import CITATION, cited_labels, compiled
from rag_rewards.text.normalize import squad
from rag_rewards.text.sections import Tags

_RELEVANCE = Tags(("relevance",))
_LEAR = Tags(("reason", "extract", "answer"))
Scores = tuple[float, float, float]


def named_documents(named: Collection[str], supporting: Collection[str]) -> Scores:
    """(precision, recall, F1) of the documents named, as sets. Range 0 to 1.

    P = |N ∩ D+|/|N|, R = |N ∩ D+|/|D+|; a part without a denominator is 0, all are 1 where both
    sets are empty. Source: HotpotQA's evaluation of supporting facts.

    >>> named_documents({"1", "3"}, {"1"})
    (0.5, 1.0, 0.6666666666666666)
    """
    if not named and not supporting:
        return 1.0, 1.0, 1.0
    precision, recall = citation_precision(named, supporting), citation_recall(named, supporting)
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


def _means(metric: Any, sums: Parts) -> Values:
    rows = sums["rows"]
    return {
        metric.name: ratio(sums["f1"], rows),
        "precision": ratio(sums["precision"], rows),
        "recall": ratio(sums["recall"], rows),
    }


@dataclass(frozen=True, repr=False)
class Relevance:
    """Mean F1, precision and recall of the ids in the relevance section against `supporting`.

    A section that cannot be read names nothing. Range 0 to 1. Source: ARENA, section 3.3.
    """

    name = "relevance"
    unit: ClassVar[Unit] = "row"
    parts = ("precision", "recall", "f1", "rows")
    needs = asks_nothing
    values = _means
    __repr__ = identity

    def gauge(self, common: Common) -> Gauge:
        return lambda row: (*named_documents(_relevant(row), row.supporting_labels), 1.0)


def _relevant(row: Rollout) -> set[str]:
    named = relevance_ids(row.parsed.cut(_RELEVANCE).content.get("relevance"))
    return {row.label_of(name) or canonical(name) for name in named or ()}


@dataclass(frozen=True, repr=False)
class Citation:
    """Mean F1, precision and recall of the documents cited outside thinking against `supporting`.

    A citation of no document counts against precision. Range 0 to 1. Source: CTRL-RAG, Eq. 2.
    """

    name = "citation"
    unit: ClassVar[Unit] = "row"
    parts = ("precision", "recall", "f1", "rows")
    needs = asks_nothing
    values = _means
    __repr__ = identity

    def gauge(self, common: Common) -> Gauge:
        pattern = compiled(CITATION)

        def measure(row: ScoredRow) -> tuple[float, ...]:
            supporting = row.supporting_labels
            cited = cited_labels(row.parsed.visible, pattern)
            return (*named_documents(cited, supporting), 1.0)

        return measure


@dataclass(frozen=True, repr=False)
class CompressionRatio:
    """Σ L_P / Σ L_e, words of the passages over words of the extracted evidence; above 0.

    `mean` is the mean of the rows' own ratios. Rows that extract nothing have no ratio: they are
    counted as `empty` and enter neither sum. Source: LEAR, section 4.1 (CR).
    """

    name = "compression-ratio"
    unit: ClassVar[Unit] = "row"
    parts = ("passages", "evidence", "ratios", "rows", "empty")
    needs = asks_nothing
    __repr__ = identity

    def gauge(self, common: Common) -> Gauge:
        return compression

    def values(self, sums: Parts) -> Values:
        return {
            self.name: ratio(sums["passages"], sums["evidence"]),
            "mean": ratio(sums["ratios"], sums["rows"] - sums["empty"]),
        }


def compression(row: Rollout) -> tuple[float, ...]:
    """(L_P, L_e, L_P/L_e, 1, extracts nothing) of a row, in words."""
    if row.documents is None:
        raise DataError("missing", "documents")
    evidence = words(row.parsed.cut(_LEAR).content.get("extract", ""))
    if not evidence:
        return 0.0, 0.0, 0.0, 1.0, 1.0
    passages = sum(words(document.text) for document in row.documents)
    return float(passages), float(evidence), passages / evidence, 1.0, 0.0


@dataclass(frozen=True, repr=False)
class AnswerRecall:
    """Share of rows whose gold answer stands in the evidence, and in the rationale.

    `squad` substring, any alias, all of several required answers. A response without the section
    recalls nothing. Range 0 to 1. Source: LEAR, section 2.2 (AR).
    """

    name = "answer-recall"
    unit: ClassVar[Unit] = "row"
    parts = ("evidence", "rationale", "rows")
    needs = asks_nothing
    __repr__ = identity

    def gauge(self, common: Common) -> Gauge:
        holds = _holding(common.forms("squad"))

        def measure(row: ScoredRow) -> tuple[float, ...]:
            content = row.parsed.cut(_LEAR).content
            gold = row.gold
            return holds(content.get("extract"), gold), holds(content.get("reason"), gold), 1.0

        return measure

    def values(self, sums: Parts) -> Values:
        return {
            self.name: ratio(sums["evidence"], sums["rows"]),
            "rationale": ratio(sums["rationale"], sums["rows"]),
        }


def _holding(forms: GoldForms) -> Callable[[str | None, Required], float]:
    def holds(text: str | None, required: Required) -> float:
        if not text:
            return 0.0
        golds = forms.plain(required)
        if golds is not None:
            normal = squad(text)
            return float(any(gold in normal for gold in golds))
        return min(substring_match(text, aliases) for aliases in required)

    return holds
