"""Metrics by name: what stands in `--metrics`, and what a metric's repr says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import msgspec

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.metrics.answers import F1, ExactMatch, Judge, ReferenceReliance, Substring
from rag_rewards.metrics.documents import AnswerRecall, Citation, CompressionRatio, Relevance
from rag_rewards.metrics.metric import Metric
from rag_rewards.metrics.signal import GroupSignal
from rag_rewards.metrics.trust import Align, AnswerRate, TrustScore
from rag_rewards.metrics.truth import MajorityAtK, PassAtK, Truthfulness
from rag_rewards.settings import did_you_mean

METRICS: dict[str, type[Any]] = {
    "em": ExactMatch,
    "f1": F1,
    "substring": Substring,
    "judge": Judge,
    "trust-score": TrustScore,
    "truthfulness": Truthfulness,
    "answer-rate": AnswerRate,
    "reference-reliance": ReferenceReliance,
    "align": Align,
    "compression-ratio": CompressionRatio,
    "answer-recall": AnswerRecall,
    "relevance": Relevance,
    "citation": Citation,
    "majority@k": MajorityAtK,
    "pass@k": PassAtK,
    "group-signal": GroupSignal,
}
"""Every metric by its name; k is a number."""

_ITEM = re.compile(r"\s*([\w-]+)(?:@(\w+))?\s*(?:\(([^()]*)\))?\s*")
_COMMA = re.compile(r",(?![^()]*\))")


def metric_of(text: str) -> Metric:
    """The metric that a text names; the inverse of its repr. UsageError.

    >>> metric_of("f1(normalizer=triviaqa)"), metric_of("pass@8")
    (f1(normalizer=triviaqa), pass@8)
    """
    match = _ITEM.fullmatch(text)
    if match is None:
        raise UsageError(f"a metric is NAME, NAME@K or NAME(key=value,…), found {text!r}")
    name, k, inside = match.groups()
    known = f"{name}@k" if k is not None or f"{name}@k" in METRICS else name
    if known not in METRICS:
        raise UsageError(f"no metric {text.strip()!r}{did_you_mean(known, METRICS)}")
    settings: dict[str, Any] = _settings(known, inside or "")
    if known.endswith("@k"):
        settings["k"] = k or "k"
    try:
        made: Metric = msgspec.convert(settings, METRICS[known], strict=False)
    except msgspec.ValidationError as error:
        what, _, path = str(error).replace("`", "").partition(" - at $.")
        if path == "k":
            raise UsageError(f"{known}: k is a whole number, such as {name}@8") from None
        raise UsageError(f"metric {known}: {path or 'settings'}: {what}") from None
    return made


def _settings(metric: str, inside: str) -> dict[str, str]:
    known = [field.name for field in fields(METRICS[metric]) if field.name != "k"]
    settings = {}
    for pair in filter(str.strip, inside.split(",")):
        key, equals, value = map(str.strip, pair.partition("="))
        if not equals:
            raise UsageError(f"metric {metric}: key=value expected, found {pair.strip()!r}")
        if key not in known:
            hint = did_you_mean(key, known) if known else "; it has none"
            raise UsageError(f"metric {metric} has no setting {key!r}{hint}")
        settings[key] = value
    return settings


def metrics_of(lists: Sequence[str]) -> tuple[list[Metric], list[str]]:
    """The metrics of comma-separated lists, each once, and the fields of `by:FIELD` among them.

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
