"""SkyRL: an environment for one response, and one with a search engine. It imports skyrl_gym.

    environment.env_class=rag            # RagEnv: the prompt contains the documents
    environment.env_class=rag-search     # RagSearchEnv: for the dialects with tags

For `rag-search`, `env_extras` of a row contain `retriever`, the `module:name` of a function from a
query to a list of documents (`{id?, title?, text}`), and optionally `dialect`. Both can be set for
all rows by `SkyRLRecipe(environment={…})`. The environments give no reward: rewards need the group,
which only the generator has. They return their turns in `get_metrics()["rag_turns"]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from rag_rewards.errors import UsageError
from rag_rewards_adapters.reading import SearchTool


def _reply(*messages: dict[str, str]) -> BaseTextEnvStepOutput:
    """Return messages with the reward 0. The episode ends without any message."""
    return BaseTextEnvStepOutput(
        observations=list(messages), reward=0.0, done=not messages, metadata={}
    )


class RagEnv(BaseTextEnv):  # type: ignore[misc]
    """Ends after one response."""

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.rag_turns: list[dict[str, Any]] = []

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Keep the response, and end with the reward 0."""
        self.turns += 1
        self.rag_turns.append({"text": action})
        return _reply()

    def get_metrics(self) -> dict[str, Any]:
        """Return the response as one turn."""
        return {"rag_turns": self.rag_turns}


class RagSearchEnv(BaseTextEnv):  # type: ignore[misc]
    """Replies to each query with the documents of a retriever, and ends at an answer.

    A turn without a query ends the episode. The last turn of `max_turns` ends it too; if it has a
    query, the metrics contain the finish reason `max_turns`. An error of the retriever ends it and
    leaves the trajectory unscored.
    """

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        extras = extras or {}
        if "retriever" not in extras:
            raise UsageError("env_extras.retriever is missing: set module:name of a function")
        self.tool = SearchTool(extras["retriever"], extras.get("dialect"))
        self.max_turns = int(extras.get("max_turns") or 4)
        self.rag_turns: list[dict[str, Any]] = []
        self._is_cut = False

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Return the reply to a message of the policy, with the reward 0."""
        self.turns += 1
        turn: dict[str, Any] = {"text": action}
        self.rag_turns.append(turn)
        query = self.tool.query_in(action)
        self._is_cut = query is not None and self.turns >= self.max_turns
        if query is None or self._is_cut:
            return _reply()
        try:
            documents = self.tool.documents(query)
        except Exception as error:
            turn["error"] = f"{type(error).__name__}: {error}"
            return _reply()
        observation = self.tool.block(documents)
        turn |= {"queries": [query], "results": documents, "observation": observation}
        return _reply({"role": "user", "content": observation})

    def get_metrics(self) -> dict[str, Any]:
        """Return the turns, the finish reason, and numbers, which SkyRL averages."""
        searches = sum("results" in turn for turn in self.rag_turns)
        return {
            "rag_turns": self.rag_turns,
            **({"rag_finish_reason": "max_turns"} if self._is_cut else {}),
            "n_turns": len(self.rag_turns),
            "searches": searches,
        }
