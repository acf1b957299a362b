"""Metrics of documents: what a response names, extracts and relies on, and their order."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from rag_rewards.errors import DataError, UsageError
from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.metric import AnswerCache, Gauge, MetricBase, Parts, Values, check_k, ratio
from rag_rewards.rewards.citation import citation_precision, citation_recall
from rag_rewards.rewards.contrastive import ContrastiveLikelihood
from rag_rewards.rewards.correctness import Correctness, f1_of
from rag_rewards.rewards.document_relevance import relevance_ids
from rag_rewards.rewards.length import LengthUnit, length_function, with_digest
from rag_rewards.rollout import Rollout, canonical
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.citations import CITATION, cited_labels, compiled
from rag_rewards.text.gold_forms import contains_answer, normal_forms
from rag_rewards.text.lengths import auto_length, first_words
from rag_rewards.text.normalize import squad
from rag_rewards.text.sections import SectionStyle, Tags

Relevance = Literal["answers", "supporting"]
"""Which documents are relevant: those that contain a gold answer, or those in `supporting`."""
Unclosed = Literal["missing", "to_end"]
"""A section without a closing tag: it counts as missing, or it ends with the response.

A response ends in the extract if its generation stops at </extract>, as in LEAR, Table 10.
"""

_LARGEST = 700.0  # e^700 is finite
_RELEVANCE = Tags(("relevance",))
_LEAR = {
    "missing": Tags(("reason", "extract", "answer")),
    "to_end": Tags(("reason", "extract", "answer"), SectionStyle("unclosed")),
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
    return precision, recall, f1_of(precision, recall)


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
        contains = Correctness("substring")

        def measure(row: ScoredRow) -> tuple[float, ...]:
            content = _sections(row, self.unclosed, self.evidence)
            texts = map(self._read, (content.get("extract"), content.get("reason")))
            return *(contains.value_of(row, text) for text in texts), 1.0

        return measure

    def _read(self, section: str | None) -> str | None:
        return first_words(section, self.max_words) if section and self.max_words else section


# --- retrieval -----------------------------------------------------------------------------------


def recall_at_k(relevant: Sequence[bool], k: int) -> float:
    """Return the share of the relevant documents that are among the first k. Range 0 to 1.

    R = |{i ≤ k: document i is relevant}| / |{i: document i is relevant}|, 0 without a relevant
    document.

    >>> recall_at_k([False, True, True], 2), recall_at_k([False], 1)
    (0.5, 0.0)
    """
    total = sum(relevant)
    return sum(relevant[:k]) / total if total else 0.0


def ndcg_at_k(relevant: Sequence[bool], k: int) -> float:
    """Return the normalized discounted cumulative gain of a ranking. Range 0 to 1.

    DCG = Σ_{i ≤ k} [document i is relevant] / log2(i + 1). NDCG is DCG divided by the DCG of the
    same documents with the relevant ones first; 0 without a relevant document. Source: Järvelin and
    Kekäläinen 2002, with binary relevance.

    >>> ndcg_at_k([True, False], 2), round(ndcg_at_k([False, True], 2), 4)
    (1.0, 0.6309)
    """
    ideal = math.fsum(1 / math.log2(i + 2) for i in range(min(k, sum(relevant))))
    gain = math.fsum(
        1 / math.log2(i + 2) for i, is_relevant in enumerate(relevant[:k]) if is_relevant
    )
    return gain / ideal if ideal else 0.0


def relevant_documents(row: Rollout, relevant: Relevance) -> list[bool] | None:
    """Return whether each document of a row is relevant, in their order.

    None if all gold answers are yes, no or empty, which a text contains without answering anything.
    Raises DataError for a row without documents, without supporting documents or gold answers, and
    for claims.
    """
    if row.documents is None:
        raise DataError("missing: the metric ranks the documents", "documents")
    if relevant == "supporting":
        supporting = row.supporting_labels
        return [label in supporting for label in row.labels]
    if row.answer_kind == "claims":
        raise DataError("claims do not occur in texts: set relevant=supporting", "answers")
    forms = normal_forms(alias for aliases in row.gold for alias in aliases)
    if not forms:
        return None
    return [contains_answer(squad(document.text), forms) for document in row.documents]


@dataclass(frozen=True, repr=False)
class _RankingMetric(MetricBase):
    """A metric of the order of the documents."""

    k: int
    relevant: Relevance = "answers"

    reads_response = False

    def __post_init__(self) -> None:
        check_k(self.k)

    def of(self, relevant: Sequence[bool]) -> tuple[float, ...]:
        """Return the values of a row."""
        raise NotImplementedError

    def gauge(self, cache: AnswerCache) -> Gauge:
        """Return (values of the row, 1, 0), or zeros and a 1 for a row that is excluded."""
        excluded = (*(0.0 for _ in self.parts[:-1]), 1.0)

        def measure(row: ScoredRow) -> tuple[float, ...]:
            relevant = relevant_documents(row, self.relevant)
            return excluded if relevant is None else (*self.of(relevant), 1.0, 0.0)

        return measure


@dataclass(frozen=True, repr=False)
@check_choices
class RecallAtK(_RankingMetric):
    """Mean share of the relevant documents that are among the first k. Range 0 to 1.

    `hit` is the share of rows with a relevant document among the first k. `relevant=answers`: a
    document is relevant if it contains a gold answer as whole words, after `squad`. Rows whose gold
    answers are only yes or no are counted as `closed` and excluded. `relevant=supporting`: the
    documents in `supporting` are relevant. Source: LEAR, Table 3, which does not define its recall;
    both values are equal if a row has at most k documents.
    """

    parts = ("recall", "hits", "rows", "closed")
    main_ratio = ("recall", "rows")
    further_ratios = MappingProxyType({"hit": ("hits", "rows")})

    @property
    def name(self) -> str:
        return f"recall@{self.k}"

    def of(self, relevant: Sequence[bool]) -> tuple[float, ...]:
        """Return the recall of a row, and whether it has a hit."""
        return recall_at_k(relevant, self.k), float(any(relevant[: self.k]))


@dataclass(frozen=True, repr=False)
@check_choices
class NDCGAtK(_RankingMetric):
    """Mean NDCG of the first k documents. Range 0 to 1.

    `relevant` is that of `recall@k`. The ideal order is that of the documents of the row, because
    the relevant documents of the corpus are unknown. Source: LEAR, Table 3.
    """

    parts = ("ndcg", "rows", "closed")
    main_ratio = ("ndcg", "rows")

    @property
    def name(self) -> str:
        return f"ndcg@{self.k}"

    def of(self, relevant: Sequence[bool]) -> tuple[float, ...]:
        """Return the NDCG of a row."""
        return (ndcg_at_k(relevant, self.k),)


# --- perplexity ----------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
@check_choices
class Perplexity(MetricBase):
    """exp(−ΣS/ΣT), the perplexity per token of the responses with all documents. At least 1.

    S is the log-probability of a response in nats, and T its number of tokens. `without` is the
    perplexity without the supporting document whose removal lowers S most. With `span=answer`, the
    tokens of the thinking section are excluded. A row needs `supporting`, and
    `logprobs` or a policy. Source: CTRL-RAG, section 5.2 and Figure 4, which write exp(−S).
    """

    span: Literal["response", "answer"] = "response"

    name = "perplexity"
    parts = ("logprob", "logprob_without", "tokens", "rows")

    @property
    def _likelihood(self) -> ContrastiveLikelihood:
        return ContrastiveLikelihood(span=self.span)

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        return self._likelihood.needs(rollout)

    def gauge(self, cache: AnswerCache) -> Gauge:
        likelihood = self._likelihood

        def measure(row: ScoredRow) -> tuple[float, ...]:
            details = likelihood([row])[0].details
            tokens = float(details["tokens"])
            return details["logprob"], details["logprob_without"], tokens, 1.0

        return measure

    def values(self, sums: Parts) -> Values:
        return {
            self.name: _perplexity(sums["logprob"], sums["tokens"]),
            "without": _perplexity(sums["logprob_without"], sums["tokens"]),
        }


def _perplexity(logprob: float, tokens: float) -> float | None:
    return math.exp(min(-logprob / tokens, _LARGEST)) if tokens else None
