"""The agent loop `rag_group`, by the name that configuration files of verl use."""

from rag_rewards_adapters.verl.group import RagGroupAgentLoop as RagGroupAgentLoop
