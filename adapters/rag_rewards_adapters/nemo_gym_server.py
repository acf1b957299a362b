"""The resources server of NeMo Gym, by the name that the files of users import."""

from rag_rewards_adapters.nemo_gym.server import RagRewardsConfig, RagRewardsServer

__all__ = ["RagRewardsConfig", "RagRewardsServer"]
