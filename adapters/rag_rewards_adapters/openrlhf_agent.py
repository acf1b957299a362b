"""The agent executor of OpenRLHF, by the name that the files of users import."""

from rag_rewards_adapters.openrlhf.agent import executor

__all__ = ["executor"]
