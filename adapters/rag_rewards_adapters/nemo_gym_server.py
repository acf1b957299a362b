"""The name of `nemo_gym.server` in the files of users."""

from rag_rewards_adapters.nemo_gym.server import RagRewardsConfig, RagRewardsServer

__all__ = ["RagRewardsConfig", "RagRewardsServer"]
