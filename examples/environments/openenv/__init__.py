"""An OpenEnv environment with the reward search-r1: its client."""

from rag_search_r1.client import RagSearchR1Env
from rag_search_r1.models import RagSearchR1Action, RagSearchR1Observation

__all__ = ["RagSearchR1Action", "RagSearchR1Env", "RagSearchR1Observation"]
