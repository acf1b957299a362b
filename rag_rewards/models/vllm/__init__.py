"""Policies on vLLM: a server (`VllmServer`), or an engine in this process (`VllmEngine`)."""

from rag_rewards.models.vllm.engine import VllmEngine
from rag_rewards.models.vllm.server import VllmServer

__all__ = ["VllmEngine", "VllmServer"]
