"""Metrics of retrieval: how many of the first k documents are relevant, and their order (LEAR)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol

from rag_rewards.errors import DataError
from rag_rewards.metrics.answer_text import AnswerCache
from rag_rewards.metrics.metric import Gauge, MetricBase
from rag_rewards.metrics.truth import check_k
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.answer_in_text import contains_answer, normal_forms
from rag_rewards.text.normalize import squad

Relevance = Literal["answers", "supporting"]
"""Which documents are relevant: those that contain a gold answer, or those in `supporting`."""


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


class _RankingMetric(Protocol):
    """A metric of the order of the documents."""

    @property
    def relevant(self) -> Relevance: ...
    @property
    def parts(self) -> tuple[str, ...]: ...
    def of(self, relevant: Sequence[bool]) -> tuple[float, ...]: ...


def _ranking_gauge(metric: _RankingMetric, cache: AnswerCache) -> Gauge:
    """Return (values of the row, 1, 0), or zeros and a 1 for a row that is excluded."""
    excluded = (*(0.0 for _ in metric.parts[:-1]), 1.0)

    def measure(row: ScoredRow) -> tuple[float, ...]:
        relevant = relevant_documents(row, metric.relevant)
        return excluded if relevant is None else (*metric.of(relevant), 1.0, 0.0)

    return measure


@dataclass(frozen=True, repr=False)
@check_choices
class RecallAtK(MetricBase):
    """Mean share of the relevant documents that are among the first k. Range 0 to 1.

    `hit` is the share of rows with a relevant document among the first k. `relevant=answers`: a
    document is relevant if it contains a gold answer as whole words, after `squad`. Rows whose gold
    answers are only yes or no are counted as `closed` and excluded. `relevant=supporting`: the
    documents in `supporting` are relevant. Source: LEAR, Table 3, which does not define its recall;
    both values are equal if a row has at most k documents.
    """

    k: int
    relevant: Relevance = "answers"

    reads_response = False
    parts = ("recall", "hits", "rows", "closed")
    main_ratio = ("recall", "rows")
    further_ratios = MappingProxyType({"hit": ("hits", "rows")})
    gauge = _ranking_gauge

    def __post_init__(self) -> None:
        check_k(self.k)

    @property
    def name(self) -> str:
        return f"recall@{self.k}"

    def of(self, relevant: Sequence[bool]) -> tuple[float, ...]:
        """Return the recall of a row, and whether it has a hit."""
        return recall_at_k(relevant, self.k), float(any(relevant[: self.k]))


@dataclass(frozen=True, repr=False)
@check_choices
class NDCGAtK(MetricBase):
    """Mean NDCG of the first k documents. Range 0 to 1.

    `relevant` is that of `recall@k`. The ideal order is that of the documents of the row, because
    the relevant documents of the corpus are unknown. Source: LEAR, Table 3.
    """

    k: int
    relevant: Relevance = "answers"

    reads_response = False
    parts = ("ndcg", "rows", "closed")
    main_ratio = ("ndcg", "rows")
    gauge = _ranking_gauge

    def __post_init__(self) -> None:
        check_k(self.k)

    @property
    def name(self) -> str:
        return f"ndcg@{self.k}"

    def of(self, relevant: Sequence[bool]) -> tuple[float, ...]:
        """Return the NDCG of a row."""
        return (ndcg_at_k(relevant, self.k),)
