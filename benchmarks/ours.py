"""Every call into rag_rewards that is measured, in one place."""

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
    """New rollouts, on which nothing is cached yet; a group shares its documents.

    A trainer's adapter builds a group that way: one tuple of documents, eight responses.
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
    found = [score.value for score in scores if score.value is not None]
    assert len(found) == len(scores), "a row was not scored"
    return found


def match(rollouts: list[rr.Rollout], metrics: tuple[str, ...]) -> list[tuple[rr.Score, ...]]:
    """Several metrics over one batch: the parsed response is shared."""
    batch = Batch(rollouts)
    return list(zip(*[batch(METRICS[metric]) for metric in metrics], strict=True))


def recipe(name: str, settings: Settings) -> rr.Recipe:
    return rr.recipe(name, settings)
