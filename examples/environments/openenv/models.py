"""The action and the observation."""

from rag_rewards_adapters.openenv import SearchAction as RagSearchR1Action
from rag_rewards_adapters.openenv import SearchObservation as RagSearchR1Observation

__all__ = ["RagSearchR1Action", "RagSearchR1Observation"]
