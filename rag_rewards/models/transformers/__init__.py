"""A policy on transformers: exact on CPU and GPU, for each model family that shares a cache."""

from rag_rewards.models.transformers.forward import PolicyUsage
from rag_rewards.models.transformers.policy import TransformersPolicy

__all__ = ["PolicyUsage", "TransformersPolicy"]
