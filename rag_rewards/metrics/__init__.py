"""Metrics of a data set: values with the counts behind them and bootstrap intervals.

    metric_of("f1(normalizer=triviaqa)")        # or: F1(normalizer="triviaqa")

Each topic has its module (`answers`, `cascade`, `truth`, `documents`, `retrieval`,
`answerability`, `trust_score`, `alignment`, `perplexity`, `reasoning`, `group_signal`,
`search`), whose plain functions are the definitions. The other modules use metrics only through
the protocol in `metric`.
"""

from __future__ import annotations

from rag_rewards.metrics.alignment import Align
from rag_rewards.metrics.answerability import AnswerRate
from rag_rewards.metrics.answers import (
    F1,
    ExactMatch,
    JudgeAccuracy,
    Lenient,
    ReferenceReliance,
    Substring,
)
from rag_rewards.metrics.at_least import AtLeast
from rag_rewards.metrics.cascade import CascadeAccuracy
from rag_rewards.metrics.documents import AnswerRecall, CitationF1, CompressionRatio, RelevanceF1
from rag_rewards.metrics.group_signal import GroupSignal
from rag_rewards.metrics.metric import GroupMetric, Metric, RowMetric
from rag_rewards.metrics.metric_names import METRICS, metric_of, metrics_of
from rag_rewards.metrics.perplexity import Perplexity
from rag_rewards.metrics.reasoning import ReasoningScore
from rag_rewards.metrics.retrieval import NDCGAtK, RecallAtK
from rag_rewards.metrics.search import Searches, SearchRecall
from rag_rewards.metrics.trust_score import TrustScore
from rag_rewards.metrics.truth import MajorityAtK, PassAtK, Truthfulness

__all__ = [
    "F1",
    "METRICS",
    "Align",
    "AnswerRate",
    "AnswerRecall",
    "AtLeast",
    "CascadeAccuracy",
    "CitationF1",
    "CompressionRatio",
    "ExactMatch",
    "GroupMetric",
    "GroupSignal",
    "JudgeAccuracy",
    "Lenient",
    "MajorityAtK",
    "Metric",
    "NDCGAtK",
    "PassAtK",
    "Perplexity",
    "ReasoningScore",
    "RecallAtK",
    "ReferenceReliance",
    "RelevanceF1",
    "RowMetric",
    "SearchRecall",
    "Searches",
    "Substring",
    "TrustScore",
    "Truthfulness",
    "metric_of",
    "metrics_of",
]
