"""Recipes as plain functions: of one rollout, or of a batch.

    reward = each("arena", settings={"bonus.value": 5})
    reward({"response": "…", "answers": ["Seine"], "supporting": [1]})     # one float

    rewards = batch("ctrl-rag", model="http://scorer:8000", backend="vllm")
    rewards(rows)                                                          # floats, None: no score

For every trainer, environment or service that calls a Python function (slime, AReaL, NeMo-Gym, a
loop of one's own). Both pickle: a process that gets one builds the recipe and its models again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.loading import RecipeSource
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows import decode_or_error, decode_row
from rag_rewards.rows.columns import to_builtins
from rag_rewards.scorer import Scorer

log = logging.getLogger("rag_rewards")

Row = Mapping[str, Any] | Rollout


class _Function:
    """A recipe and its models by plain options, which are loaded at once."""

    def __init__(self, recipe: RecipeSource | None = None, /, **options: Any) -> None:
        self.options = options if recipe is None else {"recipe": recipe, **options}
        self.scorer = Scorer.load(self.options)

    @property
    def __name__(self) -> str:
        return str(self.scorer.reward.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_made, (type(self), self.options))


class each(_Function):
    """A recipe as a function of one rollout: a row, as a mapping or a Rollout, to a float.

    Options are the command line's: `settings`, `hardened`, `stages`, `nli`, `judge`, … UsageError
    for a recipe that compares the rollouts of a group; RolloutError from the call where there is
    no score.

    >>> each("naive-grpo")({"response": "<think>…</think><answer>Paris</answer>",
    ...                     "answers": ["Paris"]})
    2.0
    """

    def __init__(self, recipe: RecipeSource | None = None, /, **options: Any) -> None:
        super().__init__(recipe, **options)
        if self.scorer.scope == "group":
            raise UsageError(
                f"recipe {self.scorer.reward.name} compares the rollouts of a group: use batch(), "
                "which sees all of them"
            )

    def __call__(self, row: Row) -> float:
        return value_of(self.scorer.score_each([_decoded(row)])[0])

    async def scored(self, row: Row) -> float:
        """The same, for callers with an event loop."""
        return value_of((await self.scorer.score_each_async([_decoded(row)]))[0])


class batch(_Function):
    """A recipe as a function of rollouts: a float for each, or None where there is no score.

    Rows of a group have the same `group`, or else the same question. What has no score is logged
    with its reason; a caller must not read None as 0.

    >>> batch("naive-grpo")([{"response": "<answer>Paris</answer>", "answers": ["Paris"]},
    ...                      {"response": "<answer>Paris</answer>"}])
    [1.0, None]
    """

    def __call__(self, rows: Sequence[Row]) -> list[float | None]:
        return _values(self.scorer.score_each(_each_decoded(rows)))

    async def scored(self, rows: Sequence[Row]) -> list[float | None]:
        """The same, for callers with an event loop."""
        return _values(await self.scorer.score_each_async(_each_decoded(rows)))


def _made(kind: type[_Function], options: Mapping[str, Any]) -> _Function:
    return kind(**options)


def _decoded(row: Row) -> Rollout:
    return row if isinstance(row, Rollout) else decode_row(to_builtins(row))


def _each_decoded(rows: Sequence[Row]) -> list[Rollout | RolloutError]:
    return [row if isinstance(row, Rollout) else decode_or_error(to_builtins(row)) for row in rows]


def value_of(result: ScoreOrError) -> float:
    """A score's value; raises the error, where there is none."""
    if isinstance(result, RolloutError):
        raise result
    if result.value is None:
        raise RolloutError("the recipe gives this rollout no score")
    return result.value


def _values(results: Sequence[ScoreOrError]) -> list[float | None]:
    errors = [result for result in results if isinstance(result, RolloutError)]
    if errors:
        log.warning("%d of %d rows are unscored: %s", len(errors), len(results), errors[0])
    return [result.value if isinstance(result, Score) else None for result in results]
