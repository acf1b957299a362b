"""OpenEnv: an environment with a search engine, and its client. It imports openenv.

    # server/app.py
    app = create_app(environments("rows.jsonl", "search-r1", search=search), SearchAction, …)

The server keeps the gold data of its rows: an observation has the prompt and the search results.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from rag_rewards.datasets.records import Records
from rag_rewards.errors import DataError, UsageError
from rag_rewards.loading import RecipeSource
from rag_rewards.rows.columns import rollout_from_columns
from rag_rewards_adapters.openenv.rubric import RagRubric, recipe_of
from rag_rewards_adapters.reading import Retriever, SearchTool
from rag_rewards_adapters.row_checks import check_rows
from rag_rewards_adapters.scoring import SingleRecipe


class SearchAction(Action):  # type: ignore[misc]
    """A turn of the policy.

    text   its words; without a query, they are the final response
    query  what to search for, None for the final response
    """

    text: str = ""
    query: str | None = None


class SearchObservation(Observation):  # type: ignore[misc]
    """What the policy gets.

    prompt         the prompt of the episode, at its start
    results        the documents that a search returned, None without a search
    error          the reason why a search failed; the rollout is then unscored
    finish_reason  `max_turns` if the last turn is a search
    """

    prompt: str = ""
    results: list[dict[str, Any]] | None = None
    error: str | None = None
    finish_reason: str | None = None


class SearchClient(EnvClient):  # type: ignore[misc]
    """The client of a SearchEnvironment: `SearchClient(base_url="http://localhost:8000").sync()`."""

    def _step_payload(self, action: SearchAction) -> dict[str, Any]:
        return dict(action.model_dump())

    def _parse_result(self, payload: dict[str, Any]) -> Any:
        outcome = {name: payload.get(name) for name in ("reward", "done")}
        observation = SearchObservation(**payload["observation"], **outcome)
        return StepResult(observation=observation, **outcome, metadata=observation.metadata)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


class SearchEnvironment(Environment):  # type: ignore[misc]
    """Answers queries with documents, and scores the episode at its end.

    rows       the questions: the fields of a row, and `prompt` if the rows were prepared
    recipe     the recipe, None for an environment without a reward
    search     function from a query to a list of documents (`{id?, title?, text}`), or its
               `module:name`; None for prompts with documents: a query then has no results
    max_turns  greatest number of turns of an episode

    An action without a query ends the episode, and so do the last turn of `max_turns` and an error
    of the search engine. A rollout with such an error is unscored: its reward is None.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        rows: Sequence[dict[str, Any]],
        recipe: SingleRecipe | None = None,
        search: Retriever | str | None = None,
        max_turns: int = 4,
    ) -> None:
        super().__init__(rubric=None if recipe is None else RagRubric(recipe))
        self._rows, self._max_turns = rows, max_turns
        self._tool = None if search is None else SearchTool(search)
        self._state, self._is_done = State(), True

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        index: int | None = None,
        **_: Any,
    ) -> SearchObservation:
        """Begin an episode with a row: that of `index`, or a random one.

        Raises UsageError for an index that is not one of a row.
        """
        count = len(self._rows)
        if index is None:
            index = random.Random(seed).randrange(count)  # noqa: S311 (not for security)
        elif not 0 <= index < count:
            raise UsageError(f"index={index}: the environment has the rows 0 to {count - 1}")
        row = self._rows[index]
        if self.rubric is not None:
            self.rubric.reset(row)
        self._state, self._is_done = State(episode_id=episode_id or str(uuid4())), False
        return SearchObservation(prompt=_prompt_of(row), metadata={"index": index})

    def step(
        self, action: SearchAction, timeout_s: float | None = None, **_: Any
    ) -> SearchObservation:
        """Return the documents of a query, or the reward of the episode at its end.

        Raises UsageError before `reset` and after the end.
        """
        if self._is_done:
            raise UsageError("the episode has ended: call reset() first")
        self._state.step_count += 1
        observation = self._reply(action.query)
        self._is_done = observation.done
        observation.reward = None if self.rubric is None else self.rubric(action, observation)
        if self._is_done and self.rubric is not None:
            observation.metadata = self.rubric.metadata()
        return observation

    @property
    def state(self) -> State:
        """The identifier of the episode, and its number of steps."""
        return self._state

    def _reply(self, query: str | None) -> SearchObservation:
        if query is None:
            return SearchObservation(done=True)
        if self._state.step_count >= self._max_turns:
            return SearchObservation(done=True, finish_reason="max_turns")
        try:
            return SearchObservation(results=self._tool.documents(query) if self._tool else [])
        except Exception as error:
            return SearchObservation(done=True, error=f"{type(error).__name__}: {error}")


def _prompt_of(row: Mapping[str, Any]) -> str:
    """Return the prompt of a row as one text, or its question if it has no prompt.

    The text of a chat is that of its messages up to the last one of the user, because it also
    contains the form of the answer. Raises DataError for a prompt that is neither, and for a row
    without a question.
    """
    prompt = row.get("prompt") or row.get("question")
    if not prompt:
        raise DataError("missing: add the question, or a prompt", "question")
    if isinstance(prompt, str):
        return prompt
    try:
        roles = [message["role"] for message in prompt]
        last = max(i for i, role in enumerate(roles) if role == "user")
        return "\n\n".join(message["content"] for message in prompt[: last + 1])
    except (KeyError, TypeError, ValueError):
        raise DataError(
            "expected text, or messages of text of which one is of the user", "prompt"
        ) from None


def environments(
    rows: str | Path,
    recipe: RecipeSource | None = None,
    /,
    *,
    search: Retriever | str | None = None,
    max_turns: int = 4,
    **options: Any,
) -> Callable[[], SearchEnvironment]:
    """Return a function that creates the environment of a session, for `create_app` of OpenEnv.

    rows     file of the questions, such as `rag-rewards prepare` writes
    recipe   a recipe in any form that scores one rollout. Without it and options, the environment
             has no reward
    options  settings and models, with the names of the command line

    All sessions share the recipe and its models. Each row is checked with an empty response.

    Raises UsageError for an unreadable file, and for a recipe that cannot score single rollouts;
    RolloutError for a row without a question or a prompt, and for one that cannot be scored.
    """
    questions = []
    with Records(str(rows)) as records:
        for number, row in records:
            if not isinstance(row, dict):
                raise UsageError(f"row {number} of {rows} is not a JSON object: correct it")
            try:
                _prompt_of(row)
            except DataError as error:
                error.row = f"{number} of {rows}"
                raise
            questions.append(row)
    if not questions:
        raise UsageError(f"{rows} contains no row: write it with `rag-rewards prepare`")
    has_reward = recipe is not None or bool(options)
    single = recipe_of(recipe, options) if has_reward else None
    if single is not None:
        check_rows(
            (
                (f"{number} of {rows}", rollout_from_columns(row, response=""))
                for number, row in enumerate(questions, start=1)
            ),
            single.scorer.recipes,
        )
    return partial(SearchEnvironment, questions, single, search, max_turns)
