"""The name of `openrlhf.agent` in the files of users."""

from rag_rewards_adapters.openrlhf.agent import executor

__all__ = ["executor"]
