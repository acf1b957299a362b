"""Entailment and similarity models on HTTP servers."""

from rag_rewards.backends.text_servers.entailment import EntailmentServer
from rag_rewards.backends.text_servers.similarity import SimilarityServer

__all__ = ["EntailmentServer", "SimilarityServer"]
