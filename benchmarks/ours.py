"""All calls into rag_rewards that rules.py measures."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec

import rag_rewards as rr
from rag_rewards.reward import Batch
from rag_rewards.rewards import AnswerMatch

Settings = dict[str, Any]

PACKAGES = ("rag-rewards", "msgspec", "rapidfuzz", "regex", "sentencex")
METRICS = {
    metric: AnswerMatch(name=metric, metric=metric, normalizer="squad", reads="answer")
    for metric in ("exact", "substring", "f1")
}


def versions() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES}


def fresh(lines: list[bytes]) -> list[rr.Rollout]:
    """Return new rollouts without cached results. The rollouts of a group share their documents.

    An adapter also builds a group with one tuple of documents and eight responses.
    """
    rollouts = []
    documents: tuple[rr.Document, ...] | None = None
    for line in lines:
        rollout = rr.decode_row(line)
        if rollout.documents:
            documents = rollout.documents
        elif documents:
            rollout = msgspec.structs.replace(rollout, documents=documents)
        rollouts.append(rollout)
    return rollouts


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
