"""Metrics of the documents that a response names, and of its evidence (LEAR)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from rag_rewards.errors import DataError, UsageError
from rag_rewards.metrics.answer_text import AnswerCache
from rag_rewards.metrics.metric import Gauge, MetricBase, Parts, Values, ratio
from rag_rewards.rewards.answer import Required, substring_match
from rag_rewards.rewards.citation import citation_precision, citation_recall
from rag_rewards.rewards.document_relevance import relevance_ids
from rag_rewards.rewards.length import LengthUnit, length_function, with_digest
from rag_rewards.rollout import Rollout, canonical
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.citations import CITATION, cited_labels, compiled
from rag_rewards.text.gold_forms import GoldForms
from rag_rewards.text.lengths import auto_length, first_words
from rag_rewards.text.normalize import squad
from rag_rewards.text.sections import SectionStyle, Tags

Unclosed = Literal["missing", "to_end"]
"""A section without a closing tag: it counts as missing, or it ends with the response.

A response ends in the extract if its generation stops at </extract>, as in LEAR, Table 10.
"""

_RELEVANCE = Tags(("relevance",))
_LEAR = {
    unclosed: Tags(("reason", "extract", "answer"), SectionStyle(unclosed=unclosed))
    for unclosed in get_args(Unclosed)
}
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


Evidence = Literal["extract", "response"]
"""The evidence in a response: its extract, or the whole response without its thinking section."""


def _sections(row: Rollout, unclosed: Unclosed, evidence: Evidence) -> Mapping[str, str]:
    """Return the sections of a response, with its evidence as the extract."""
    content = row.parsed.cut(_LEAR[unclosed]).content
    return content if evidence == "extract" else {**content, "extract": row.parsed.visible}


@dataclass(frozen=True, repr=False)
@check_choices
class CompressionRatio(MetricBase):
    """Σ L_P / Σ L_e, length of the passages over length of the extracted evidence. Range above 0.

    `length` is the unit and `tokenizer` the tokenizer, as in the recipe `lear` (`length.unit`,
    `length.tokenizer`). `evidence=response` is for chains of thought, which have no extract. `mean`
    is the mean of the ratios of the rows. Rows without an extract are counted as `empty` and
    excluded from both sums. Source: LEAR, section 4.1 (CR).
    """

    length: LengthUnit = "auto"
    tokenizer: str | None = None
    evidence: Evidence = "extract"
    unclosed: Unclosed = "missing"

    name = "compression-ratio"
    parts = ("passages", "evidence", "ratios", "rows", "empty")

    def __post_init__(self) -> None:
        length_function(self.length, self.tokenizer)
        if self.tokenizer is not None:
            object.__setattr__(self, "tokenizer", with_digest(self.tokenizer))

    def gauge(self, cache: AnswerCache) -> Gauge:
        count = length_function(self.length, self.tokenizer)
        return lambda row: compression(row, count, self.unclosed, self.evidence)

    def values(self, sums: Parts) -> Values:
        return {
            self.name: ratio(sums["passages"], sums["evidence"]),
            "mean": ratio(sums["ratios"], sums["rows"] - sums["empty"]),
        }


def compression(
    row: Rollout,
    count: Callable[[str], int] = auto_length,
    unclosed: Unclosed = "missing",
    evidence: Evidence = "extract",
) -> tuple[float, ...]:
    """Return (L_P, L_e, L_P/L_e, 1, 0) of a row, or (0, 0, 0, 1, 1) without an extract."""
    if row.documents is None:
        raise DataError("missing", "documents")
    length = count(_sections(row, unclosed, evidence).get("extract", ""))
    if not length:
        return 0.0, 0.0, 0.0, 1.0, 1.0
    passages = sum(count(document.text) for document in row.documents)
    return float(passages), float(length), passages / length, 1.0, 0.0


@dataclass(frozen=True, repr=False)
@check_choices
class AnswerRecall(MetricBase):
    """Shares of rows whose evidence, and whose rationale, contains the gold answer.

    An alias is a substring after `squad`. All of several required answers must occur. A response
    without the section counts as 0. `max_words` is the number of words of a section that are read
    (100 in the paper). Range 0 to 1. Source: LEAR, section 2.2 and Table 1 (AR).
    """

    max_words: int | None = None
    evidence: Evidence = "extract"
    unclosed: Unclosed = "missing"

    name = "answer-recall"
    parts = ("evidence", "rationale", "rows")
    main_ratio = ("evidence", "rows")
    further_ratios = MappingProxyType({"rationale": ("rationale", "rows")})

    def __post_init__(self) -> None:
        if self.max_words is not None and self.max_words < 1:
            raise UsageError(f"max_words must be at least 1, found {self.max_words}")

    def gauge(self, cache: AnswerCache) -> Gauge:
        contains = _containment(cache.forms("squad"))

        def measure(row: ScoredRow) -> tuple[float, ...]:
            content = _sections(row, self.unclosed, self.evidence)
            gold = row.gold
            evidence, rationale = map(self._read, (content.get("extract"), content.get("reason")))
            return contains(evidence, gold), contains(rationale, gold), 1.0

        return measure

    def _read(self, section: str | None) -> str | None:
        return first_words(section, self.max_words) if section and self.max_words else section


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
