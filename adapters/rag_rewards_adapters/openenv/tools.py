"""OpenEnv in TRL: the tools of a SearchEnvironment for `environment_factory` of GRPOTrainer.

    class Search(ScoredSearchTools):
        url = "http://localhost:8000"

    trainer = GRPOTrainer(model, train_dataset=rows, environment_factory=Search)

TRL creates an object for each rollout, and its public methods are the tools of the policy. They are
called as in TRL 1.16.0, `trl/trainer/grpo_trainer.py`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, ClassVar

from rag_rewards.errors import BackendError, UsageError
from rag_rewards_adapters.openenv.environment import SearchAction, SearchClient
from rag_rewards_adapters.openenv.rubric import UNSCORED

_ANSWER_BY_CALL = "\n\nGive the final answer by a call of the tool `answer`."


class SearchTools:
    """A search engine of an environment, without a reward: pass RagReward as `reward_funcs`.

    url                address of the server; override it in a subclass
    environment_error  the failure of the server or the search engine in this rollout, which
                       RagReward leaves unscored

    The column `index` of the data set chooses the row of the environment, so that the rollouts of a
    group have the same row. A data set without the column `prompt` gets the environment's prompts.
    """

    url: ClassVar[str] = "http://localhost:8000"

    def __init__(self) -> None:
        self._client = SearchClient(base_url=self.url).sync()
        self._last: Any = None
        self.environment_error: str | None = None

    def reset(self, **row: Any) -> str | None:
        """Begin a rollout. Return what TRL appends to the prompt, if anything.

        Raises UsageError for a data set without the column `index`.
        """
        if "index" not in row:
            raise UsageError("the data set has no column index: add the number of each row, from 0")
        self.environment_error = None
        self._last = self._client.reset(index=row["index"])
        return None if row.get("prompt") else str(self._last.observation.prompt)

    def search(self, query: str) -> str:
        """Search for documents.

        Args:
            query: A question or a few keywords.

        Returns:
            The documents in JSON.
        """
        if not isinstance(query, str):  # None would be the final response
            raise ValueError(f"query={query!r}: it must be text")
        observation = self._step(SearchAction(query=query))
        if observation.finish_reason == "max_turns":
            raise ValueError("no further search is possible")
        return json.dumps(observation.results, ensure_ascii=False)

    def _step(self, action: SearchAction) -> Any:
        """Return the observation of an action. An error is fed back to the policy by TRL."""
        if self._last.done:
            raise ValueError("the episode has ended: no further call counts")
        try:
            self._last = self._client.step(action)
        except Exception as error:
            self.environment_error = f"{type(error).__name__}: {error}"
            raise
        if self._last.observation.error is not None:
            self.environment_error = self._last.observation.error
            raise RuntimeError("the search engine failed")
        return self._last.observation


class ScoredSearchTools(SearchTools):
    """The tools of an environment that owns the reward, for one rollout at a time.

    patience  number of consecutive unscored rollouts before the error is raised

    TRL calls `get_reward` after each rollout. The environment sees only the calls of the policy, so
    the answer must be a call of `answer`; without one, it is empty. An unscored rollout is None,
    which TRL excludes from its group. If no rollout has been scored yet, the error is raised.
    """

    patience: ClassVar[int] = 32
    _unscored: ClassVar[int | None] = None

    def reset(self, **row: Any) -> str:
        """Begin a rollout. Return what TRL appends to the prompt."""
        return (super().reset(**row) or "") + _ANSWER_BY_CALL

    def answer(self, answer: str) -> str:
        """Give the final answer. It ends the task.

        Args:
            answer: The final answer, in the form that the task requests.

        Returns:
            A confirmation.
        """
        self._step(SearchAction(text=answer))
        return "The task has ended."

    def get_reward(self) -> float | None:
        """Return the reward of the rollout, None if it is unscored.

        Raises BackendError if `patience` rollouts in a row, or the first one, are unscored.
        """
        if self.environment_error is None and not self._last.done:
            with suppress(Exception):  # `_step` keeps it as the error of the environment
                self._step(SearchAction())
        reason, kind = self.environment_error, type(self)
        if reason is None and self._last.reward is not None:
            kind._unscored = 0
            return float(self._last.reward)
        reason = reason or (self._last.metadata or {}).get(UNSCORED, "it has no reward")
        if kind._unscored is None or kind._unscored + 1 >= kind.patience:
            raise BackendError(f"the environment at {self.url} scores no rollout: {reason}")
        kind._unscored += 1
        return None
