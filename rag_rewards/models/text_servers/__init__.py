"""Entailment and similarity models on HTTP servers."""

from rag_rewards.models.text_servers.entailment import EntailmentServer
from rag_rewards.models.text_servers.similarity import SimilarityServer

__all__ = ["EntailmentServer", "SimilarityServer"]
