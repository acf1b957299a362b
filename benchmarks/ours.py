"""All calls into rag_rewards that rules.py measures."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from time_recipes import fresh as fresh

import rag_rewards as rr
from rag_rewards.reward import Batch
from rag_rewards.rewards import AnswerMatch

Settings = dict[str, Any]

PACKAGES = ("msgspec", "rapidfuzz", "regex", "sentencex")
METRICS = {
    metric: AnswerMatch(name=metric, metric=metric, normalizer="squad", reads="answer")
    for metric in ("exact", "substring", "f1")
}
DECISIONS = {
    "exact": METRICS["exact"],
    "decided": AnswerMatch(name="decided", normalizer="squad", reads="answer", undecided="wrong"),
}
"""Exact match, and the decision on the same answer."""


def versions() -> dict[str, str]:
    return {"rag-rewards": rr.__version__} | {name: version(name) for name in PACKAGES}


def values(scores: list[rr.Score]) -> list[float]:
    values = [score.value for score in scores if score.value is not None]
    assert len(values) == len(scores), "a row is unscored"
    return values


def match(rollouts: list[rr.Rollout], metrics: tuple[str, ...]) -> list[tuple[rr.Score, ...]]:
    """Compute several metrics of one batch, which share the parsed responses."""
    batch = Batch(rollouts)
    return list(zip(*[batch(METRICS[metric]) for metric in metrics], strict=True))


def recipe(name: str, settings: Settings) -> rr.Recipe:
    return rr.recipe(name, settings)
