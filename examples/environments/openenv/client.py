"""The client: RagSearchR1Env(base_url="http://localhost:8000").sync()"""

from rag_rewards_adapters.openenv import SearchClient as RagSearchR1Env

__all__ = ["RagSearchR1Env"]
