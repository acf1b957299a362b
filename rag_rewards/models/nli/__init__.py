"""Local entailment models: whether one text entails another."""

from rag_rewards.models.nli.model import EntailmentUsage, LocalEntailment, load_entailment
from rag_rewards.models.nli.pieces import HypothesisTooLong

__all__ = ["EntailmentUsage", "HypothesisTooLong", "LocalEntailment", "load_entailment"]
