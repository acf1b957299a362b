"""Handling of unscored rollouts while a trainer runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rag_rewards.errors import DataError, RolloutError
from rag_rewards.rollout import Score, ScoreOrError
from rag_rewards.shorten import plain

log = logging.getLogger("rag_rewards")


class UnscoredHandler:
    """Raises the errors of the first batch, and counts and logs those of later batches.

    An error in the first batch means that data or settings are wrong, so it is raised before any
    training is lost. Later, an unscored rollout is counted (`count`) and logged. After `patience`
    consecutive batches without any score, the error is raised, because the policy would learn
    nothing.
    """

    def __init__(self, patience: int = 3) -> None:
        self.patience = patience
        self.count = 0
        self._is_first = True
        self._batches_without_score = 0

    def handle(
        self, results: Sequence[ScoreOrError], positions: Sequence[int] = ()
    ) -> list[Score | None]:
        """Return the scores, with None for unscored rollouts. Raise the first error as described.

        `positions` are those of the rollouts in the trainer's batch. An error whose row has no id
        names its position.
        """
        results = [with_value(result) for result in results]
        for result, position in zip(results, positions, strict=False):
            if isinstance(result, RolloutError) and result.row is None:
                result.row = f"{position} of the batch"
        scores = [result if isinstance(result, Score) else None for result in results]
        errors = [result for result in results if isinstance(result, RolloutError)]
        if errors and self._is_first:
            raise errors[0]
        self._is_first = False
        self.count += len(errors)
        if errors:
            reason = plain(str(errors[0]))
            log.warning("%d of %d rollouts are unscored: %s", len(errors), len(scores), reason)
        without_score = bool(errors) and len(errors) == len(scores)
        self._batches_without_score = self._batches_without_score + 1 if without_score else 0
        if self._batches_without_score >= self.patience:
            raise errors[0]
        return scores


def with_value(result: ScoreOrError) -> ScoreOrError:
    """Return the result, or a DataError for a score without a value."""
    if isinstance(result, Score) and result.value is None:
        return DataError("the recipe gives this rollout no reward", "response")
    return result
