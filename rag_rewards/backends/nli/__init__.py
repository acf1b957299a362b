"""Local entailment models: whether one text entails another."""

from rag_rewards.backends.nli.model import EntailmentUsage, LocalEntailment, load_entailment
from rag_rewards.backends.nli.pieces import HypothesisTooLong

__all__ = ["EntailmentUsage", "HypothesisTooLong", "LocalEntailment", "load_entailment"]
