"""The metrics by name, and the parser of their names and settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import msgspec

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.metrics import (
    answers,
    claims,
    confidence,
    documents,
    scored_values,
    search,
    trust_score,
    truth,
)
from rag_rewards.metrics.metric import AtLeast, Metric
from rag_rewards.settings import REPLACED, closed_sets, did_you_mean

METRICS: dict[str, type[Any]] = {
    "em": answers.ExactMatch,
    "f1": answers.F1,
    "substring": answers.Substring,
    "lenient": answers.Lenient,
    "judge": answers.JudgeAccuracy,
    "cascade": answers.CascadeAccuracy,
    "brier": confidence.Brier,
    "trust-score": trust_score.TrustScore,
    "truthfulness": truth.Truthfulness,
    "ths": truth.TruthfulHelpfulness,
    "answer-rate": trust_score.AnswerRate,
    "reference-reliance": answers.ReferenceReliance,
    "align": trust_score.Align,
    "reasoning-score": truth.ReasoningScore,
    "compression-ratio": documents.CompressionRatio,
    "answer-recall": documents.AnswerRecall,
    "perplexity": documents.Perplexity,
    "relevance": documents.RelevanceF1,
    "citation": documents.CitationF1,
    "faithfulness": claims.Faithfulness,
    "attribution": claims.Attribution,
    "recall@k": documents.RecallAtK,
    "ndcg@k": documents.NDCGAtK,
    "searches": search.Searches,
    "search-recall": search.SearchRecall,
    "majority@k": truth.MajorityAtK,
    "pass@k": truth.PassAtK,
    "group-signal": scored_values.GroupSignal,
}
"""The class of each metric by name. `k` stands for a number."""

_THRESHOLD = re.compile(r"(?P<metric>.*[^<>=])>=(?P<value>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*")
_ITEM = re.compile(r"\s*([\w-]+)(?:@(\w+))?\s*(?:\(([^()]*)\))?\s*")
_COMMA = re.compile(r",(?![^()]*\))")


def metric_of(text: str) -> Metric:
    """Parse the name and the settings of a metric, as its repr shows them.

    `reward`, `correct` and `components.NAME` are the values of scored rows.

    Raises UsageError for an unknown metric, setting or value.

    >>> metric_of("f1(normalizer=triviaqa)"), metric_of("pass@8"), metric_of("f1>=0.5")
    (f1(normalizer=triviaqa), pass@8, f1>=0.5)
    """
    if threshold := _THRESHOLD.fullmatch(text):
        return AtLeast(metric_of(threshold["metric"]), float(threshold["value"]))  # type: ignore[arg-type]
    if text.strip() in ("reward", "correct") or text.strip().startswith("components."):
        return scored_values.ScoreValue(text.strip())
    match = _ITEM.fullmatch(text)
    if match is None:
        raise UsageError(f"a metric must be NAME, NAME@K or NAME(key=value,…), found {text!r}")
    name, k, inside = match.groups()
    key = f"{name}@k" if k is not None or f"{name}@k" in METRICS else name
    if key not in METRICS:
        names = (*METRICS, "reward", "correct", "components.NAME")
        raise UsageError(f"unknown metric {text.strip()!r}{did_you_mean(key, names)}")
    settings: dict[str, Any] = _settings(key, inside or "")
    if key.endswith("@k"):
        settings["k"] = k or "k"
    kind: Any = METRICS[key]
    try:
        metric: Metric = msgspec.convert(settings, kind, strict=False)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).replace("`", "").partition(" - at $.")
        if path == "k":
            raise UsageError(f"{key}: k must be an integer, for example {name}@8") from None
        for setting, choices, _ in closed_sets(kind):
            if setting == path:
                problem = (
                    f"expected one of {', '.join(map(str, choices))}, found {settings[path]!r}"
                )
        raise UsageError(f"metric {key}: {path or 'settings'}: {problem}") from None
    return metric


def _settings(metric: str, inside: str) -> dict[str, str]:
    names = [field.name for field in fields(METRICS[metric]) if field.name != "k"]
    settings = {}
    for pair in filter(str.strip, inside.split(",")):
        key, equals, value = map(str.strip, pair.partition("="))
        if not equals:
            raise UsageError(f"metric {metric}: expected key=value, found {pair.strip()!r}")
        if key not in names:
            raise UsageError(f"metric {metric} has no setting {key!r}{_hint(key, names)}")
        settings[key] = value
    return settings


def _hint(key: str, names: Sequence[str]) -> str:
    replacement = REPLACED[key].key.rpartition(".")[2] if key in REPLACED else ""
    if replacement in names:
        return f" since version 0.8.0; use {replacement!r}"
    return did_you_mean(key, names) if names else "; it has no settings"


def metrics_of(lists: Sequence[str]) -> tuple[list[Metric], list[str]]:
    """Parse comma-separated lists of metrics, and return the metrics and the fields of `by:FIELD`.

    >>> metrics_of(["em, pass@4(verifier=exact)", "by:hops,em"])
    ([em, pass@4], ['hops'])
    """
    metrics: dict[str, Metric] = {}
    by: list[str] = []
    for item in (item for text in lists for item in _COMMA.split(text) if item.strip()):
        if item.strip().startswith("by:"):
            by.append(item.strip().removeprefix("by:"))
        else:
            metric = metric_of(item)
            metrics[repr(metric)] = metric
    if not metrics:
        raise OptionError("{metrics} is empty: choose from {names}", names=", ".join(METRICS))
    return list(metrics.values()), by
