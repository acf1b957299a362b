"""Policies on vLLM: a server (`VllmServer`), or an engine in this process (`VllmEngine`)."""

from rag_rewards.backends.vllm.engine import VllmEngine
from rag_rewards.backends.vllm.server import VllmServer

__all__ = ["VllmEngine", "VllmServer"]
