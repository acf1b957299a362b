"""Metrics of the documents that a response names, and of its evidence (LEAR)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import MappingProxyType

from rag_rewards.errors import DataError
from rag_rewards.metrics.answer_text import AnswerCache
from rag_rewards.metrics.metric import Gauge, MetricBase, Parts, Values, ratio
from rag_rewards.rewards.answer import Required, substring_match
from rag_rewards.rewards.citation import citation_precision, citation_recall
from rag_rewards.rewards.document_relevance import relevance_ids
from rag_rewards.rollout import GoldForms, Rollout, canonical
from rag_rewards.rows import ScoredRow
from rag_rewards.text.citations import CITATION, cited_labels, compiled
from rag_rewards.text.lengths import words
from rag_rewards.text.normalize import squad
from rag_rewards.text.sections import Tags

_RELEVANCE = Tags(("relevance",))
_LEAR = Tags(("reason", "extract", "answer"))
_SCORES = ("precision", "recall", "f1", "rows")
_MEANS = MappingProxyType({"precision": ("precision", "rows"), "recall": ("recall", "rows")})
Scores = tuple[float, float, float]


def named_documents(named: Collection[str], supporting: Collection[str]) -> Scores:
    """Return precision, recall and F1 of the named documents, as sets. Range 0 to 1.

    P = |N ∩ D+|/|N|, R = |N ∩ D+|/|D+|. A value without a denominator is 0. All values are 1 if
    both sets are empty. Source: HotpotQA's evaluation of supporting facts.

    >>> named_documents({"1", "3"}, {"1"})
    (0.5, 1.0, 0.6666666666666666)
    """
    if not named and not supporting:
        return 1.0, 1.0, 1.0
    precision, recall = citation_precision(named, supporting), citation_recall(named, supporting)
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


@dataclass(frozen=True, repr=False)
class RelevanceF1(MetricBase):
    """Mean F1, precision and recall of the ids in the relevance section against `supporting`.

    A malformed section names no document. Range 0 to 1. Source: ARENA, section 3.3.
    """

    name = "relevance"
    parts = _SCORES
    main_ratio = ("f1", "rows")
    further_ratios = _MEANS

    def gauge(self, cache: AnswerCache) -> Gauge:
        return lambda row: (*named_documents(_relevant(row), row.supporting_labels), 1.0)


def _relevant(row: Rollout) -> set[str]:
    named = relevance_ids(row.parsed.cut(_RELEVANCE).content.get("relevance"))
    return {row.label_of(name) or canonical(name) for name in named or ()}


@dataclass(frozen=True, repr=False)
class CitationF1(MetricBase):
    """Mean F1, precision and recall of the cited documents against `supporting`.

    Citations in the thinking section are ignored. A citation of no document lowers the precision.
    Range 0 to 1. Source: CTRL-RAG, Eq. 2.
    """

    name = "citation"
    parts = _SCORES
    main_ratio = ("f1", "rows")
    further_ratios = _MEANS

    def gauge(self, cache: AnswerCache) -> Gauge:
        pattern = compiled(CITATION)

        def measure(row: ScoredRow) -> tuple[float, ...]:
            supporting = row.supporting_labels
            cited = cited_labels(row.parsed.visible, pattern)
            return (*named_documents(cited, supporting), 1.0)

        return measure


@dataclass(frozen=True, repr=False)
class CompressionRatio(MetricBase):
    """Σ L_P / Σ L_e, words of the passages over words of the extracted evidence. Range above 0.

    `mean` is the mean of the ratios of the rows. Rows without an extract are counted as `empty`
    and excluded from both sums. Source: LEAR, section 4.1 (CR).
    """

    name = "compression-ratio"
    parts = ("passages", "evidence", "ratios", "rows", "empty")

    def gauge(self, cache: AnswerCache) -> Gauge:
        return compression

    def values(self, sums: Parts) -> Values:
        return {
            self.name: ratio(sums["passages"], sums["evidence"]),
            "mean": ratio(sums["ratios"], sums["rows"] - sums["empty"]),
        }


def compression(row: Rollout) -> tuple[float, ...]:
    """Return (L_P, L_e, L_P/L_e, 1, 0) of a row in words, or (0, 0, 0, 1, 1) without extract."""
    if row.documents is None:
        raise DataError("missing", "documents")
    evidence = words(row.parsed.cut(_LEAR).content.get("extract", ""))
    if not evidence:
        return 0.0, 0.0, 0.0, 1.0, 1.0
    passages = sum(words(document.text) for document in row.documents)
    return float(passages), float(evidence), passages / evidence, 1.0, 0.0


@dataclass(frozen=True, repr=False)
class AnswerRecall(MetricBase):
    """Shares of rows whose evidence, and whose rationale, contains the gold answer.

    An alias is a substring after `squad`. All of several required answers must occur. A response
    without the section counts as 0. Range 0 to 1. Source: LEAR, section 2.2 (AR).
    """

    name = "answer-recall"
    parts = ("evidence", "rationale", "rows")
    main_ratio = ("evidence", "rows")
    further_ratios = MappingProxyType({"rationale": ("rationale", "rows")})

    def gauge(self, cache: AnswerCache) -> Gauge:
        contains = _containment(cache.forms("squad"))

        def measure(row: ScoredRow) -> tuple[float, ...]:
            content = row.parsed.cut(_LEAR).content
            gold = row.gold
            evidence, rationale = content.get("extract"), content.get("reason")
            return contains(evidence, gold), contains(rationale, gold), 1.0

        return measure


def _containment(forms: GoldForms) -> Callable[[str | None, Required], float]:
    def contains(text: str | None, required: Required) -> float:
        if not text:
            return 0.0
        golds = forms.plain(required)
        if golds is not None:
            normal = squad(text)
            return float(any(gold in normal for gold in golds))
        return min(substring_match(text, aliases) for aliases in required)

    return contains
