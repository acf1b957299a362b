"""Recipes as plain functions of one rollout or of a batch.

    reward = each("arena", settings={"bonus.value": 5})
    reward({"response": "…", "answers": ["Seine"], "supporting": [1]})     # one float

    rewards = batch("ctrl-rag", model="http://scorer:8000", backend="vllm")
    rewards(rows)                                      # a list of floats, None if unscored

They suit every trainer, environment or service that calls a Python function (slime, AReaL,
NeMo-Gym, your own loop). Both can be pickled: the process that receives one builds the recipe and
its models again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from rag_rewards.errors import RolloutError, plain
from rag_rewards.loading import RecipeSource
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows import decode_row
from rag_rewards.rows.columns import to_builtins
from rag_rewards_adapters.reading import with_errors
from rag_rewards_adapters.scoring import check_scope, load, score_of

log = logging.getLogger("rag_rewards")

Row = Mapping[str, Any] | Rollout


class _RecipeFunction:
    """A recipe and its models, which are loaded at construction."""

    def __init__(self, recipe: RecipeSource | None = None, /, **options: Any) -> None:
        self.options = options if recipe is None else {"recipe": recipe, **options}
        self.scorer = load(None, self.options)

    @property
    def __name__(self) -> str:
        return str(self.scorer.reward.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.options))


class each(_RecipeFunction):
    """A recipe as a function from one rollout (a mapping or a Rollout) to a float.

    The options have the names of the command line: `settings`, `hardened`, `stages`, `nli`,
    `judge`, … Raises UsageError for a recipe that compares the rollouts of a group. A call raises
    RolloutError for a rollout that cannot be scored.

    >>> each("naive-grpo")({"response": "<think>…</think><answer>Paris</answer>",
    ...                     "answers": ["Paris"]})
    2.0
    """

    def __init__(self, recipe: RecipeSource | None = None, /, **options: Any) -> None:
        super().__init__(recipe, **options)
        way = "use batch(), which gets all of them"
        check_scope(self.scorer.reward, "a call of each()", for_groups=way)

    def __call__(self, row: Row) -> float:
        return value_of(self.scorer.score_each([_rollout(row)])[0])

    async def scored(self, row: Row) -> float:
        """Return the reward of a rollout, for callers with an event loop."""
        return value_of((await self.scorer.score_each_async([_rollout(row)]))[0])


class batch(_RecipeFunction):
    """A recipe as a function from rollouts to a list of floats, with None for unscored rollouts.

    The rows of a group have the same `group`, or else the same question. The reason of an unscored
    rollout is logged. A caller must not treat None as 0.

    >>> batch("naive-grpo")([{"response": "<answer>Paris</answer>", "answers": ["Paris"]},
    ...                      {"response": "<answer>Paris</answer>"}])
    [1.0, None]
    """

    def __call__(self, rows: Sequence[Row]) -> list[float | None]:
        return _values(self.scorer.score_each(_rollouts(rows)))

    async def scored(self, rows: Sequence[Row]) -> list[float | None]:
        """Return the rewards of rollouts, for callers with an event loop."""
        return _values(await self.scorer.score_each_async(_rollouts(rows)))


def _rebuild(function: type[_RecipeFunction], options: Mapping[str, Any]) -> _RecipeFunction:
    return function(**options)


def _rollout(row: Row) -> Rollout:
    return row if isinstance(row, Rollout) else decode_row(to_builtins(row))


def _rollouts(rows: Sequence[Row]) -> list[Rollout | RolloutError]:
    return list(map(with_errors(_rollout), rows))


def value_of(result: ScoreOrError) -> float:
    """Return the value of a score. Raise the RolloutError of an unscored rollout."""
    return float(score_of(result).value or 0.0)


def _values(results: Sequence[ScoreOrError]) -> list[float | None]:
    errors = [result for result in results if isinstance(result, RolloutError)]
    if errors:
        reason = plain(str(errors[0]))
        log.warning("%d of %d rows are unscored: %s", len(errors), len(results), reason)
    return [result.value if isinstance(result, Score) else None for result in results]
