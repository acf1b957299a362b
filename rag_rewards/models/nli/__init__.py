"""Local entailment models: whether one text entails another."""

from rag_rewards.models.nli.model import EntailmentUsage, LocalEntailment, load_entailment

__all__ = ["EntailmentUsage", "LocalEntailment", "load_entailment"]
