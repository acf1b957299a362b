"""Metrics of a data set: values with the counts behind them and bootstrap intervals.

    metric_of("f1(normalizer=triviaqa)")        # or: F1(normalizer="triviaqa")

Each theme has its file (`answers`, `truth`, `documents`, `trust`, `signal`); the plain functions in
it are the definitions. The engine (`measuring`, `bootstrap`, `summary`, `splitting`, `comparison`)
knows a metric by its protocol alone.
"""

from __future__ import annotations

from rag_rewards.metrics.answers import F1, ExactMatch, Judge, ReferenceReliance, Substring
from rag_rewards.metrics.documents import AnswerRecall, Citation, CompressionRatio, Relevance
from rag_rewards.metrics.metric import GroupMetric, Metric, RowMetric
from rag_rewards.metrics.naming import METRICS, metric_of, metrics_of
from rag_rewards.metrics.signal import GroupSignal
from rag_rewards.metrics.trust import Align, AnswerRate, TrustScore
from rag_rewards.metrics.truth import MajorityAtK, PassAtK, Truthfulness

__all__ = [
    "F1",
    "METRICS",
    "Align",
    "AnswerRate",
    "AnswerRecall",
    "Citation",
    "CompressionRatio",
    "ExactMatch",
    "GroupMetric",
    "GroupSignal",
    "Judge",
    "MajorityAtK",
    "Metric",
    "PassAtK",
    "ReferenceReliance",
    "Relevance",
    "RowMetric",
    "Substring",
    "TrustScore",
    "Truthfulness",
    "metric_of",
    "metrics_of",
]
