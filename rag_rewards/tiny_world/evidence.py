"""The models that provide evidence in the tiny world, apart from the policy."""

from __future__ import annotations

from rag_rewards.evidence.protocols import Models
from rag_rewards.testing import TableEntailment


def entails(premise: str, hypothesis: str) -> float:
    """Return 1 if the premise contains every word of the hypothesis, else 0.

    >>> entails("Ada rose", "rose"), entails("Ada rose", "lily")
    (1.0, 0.0)
    """
    return float(set(hypothesis.strip(" .").split()) <= set(premise.split()))


def world_models() -> Models:
    """Return the tiny world's entailment model."""
    return Models(entailment=TableEntailment(entails, fingerprint="tiny-world"))
