"""A judge on any server with OpenAI's `/chat/completions` endpoint."""

from rag_rewards.models.openai.judge import OpenAIJudge
from rag_rewards.models.openai.usage import JudgeUsage

__all__ = ["JudgeUsage", "OpenAIJudge"]
