"""Handling of unscored rollouts while a trainer runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rag_rewards.errors import BackendError, DataError, RolloutError, plain, shorten
from rag_rewards.rollout import Rollout, Score, ScoreOrError

log = logging.getLogger("rag_rewards")

FAILED_SHARE = 0.1
"""The share of unscored rollouts or groups from which a batch with failures of models counts."""


class UnscoredHandler:
    """Raises the errors of the first batch, and counts and logs those of later batches.

    An error in the first batch means that data or settings are wrong, so it is raised before any
    training is lost. Later, an unscored rollout is counted (`count`) and logged. After `patience`
    consecutive batches in which a model or server failed and at least a tenth of the rollouts is
    unscored, or in which no rollout is scored, the error is raised: the policy would learn nothing,
    or only from the groups that need no model. A single failure in a large batch ends no training.
    """

    def __init__(self, patience: int = 3) -> None:
        self.patience = patience
        self.count = 0
        self._is_first = True
        self._failed_batches = 0

    def handle(
        self,
        results: Sequence[ScoreOrError],
        rollouts: Sequence[Rollout | RolloutError] = (),
        positions: Sequence[int] | None = None,
    ) -> list[Score | None]:
        """Return the scores, with None for unscored rollouts. Raise the first error as described.

        `positions` are those of the rollouts in the trainer's batch, if only some are scored. An
        error whose row has no id names its position and the start of its question.
        """
        results = [with_value(result) for result in results]
        for i, result in enumerate(results):
            if isinstance(result, RolloutError) and result.row is None:
                rollout = rollouts[i] if i < len(rollouts) else None
                result.row = place_of(i if positions is None else positions[i], rollout)
        scores = [result if isinstance(result, Score) else None for result in results]
        errors = [result for result in results if isinstance(result, RolloutError)]
        failures = [error for error in errors if isinstance(error, BackendError)]
        causes = failures or errors
        if errors and self._is_first:
            raise causes[0]
        self._is_first = False
        self.count += len(errors)
        if errors:
            reason = plain(str(causes[0]))
            log.warning("%d of %d rollouts are unscored: %s", len(errors), len(scores), reason)
        share = FAILED_SHARE if failures else 1.0
        has_failed = bool(errors) and len(errors) >= share * len(scores)
        self._failed_batches = self._failed_batches + 1 if has_failed else 0
        if self._failed_batches >= self.patience:
            raise self._end(causes[0])
        return scores

    def _end(self, cause: RolloutError) -> RolloutError:
        """Return the error that ends the training."""
        what = "a model failed in" if isinstance(cause, BackendError) else "no rollout is scored in"
        error = type(cause)(
            f"{cause.message} ({what} {self._failed_batches} consecutive batches: repair the cause "
            f"and continue from a checkpoint, or increase patience={self.patience})",
            cause.path,
        )
        error.row, error.__cause__ = cause.row, cause
        return error


def place_of(position: int, rollout: Rollout | RolloutError | None) -> str:
    """Return the name of a row without an id in a message.

    >>> place_of(5, Rollout(response="", question="Which river runs through Paris?"))
    "5 of the batch (question 'Which river runs through Paris?')"
    """
    question = rollout.question if isinstance(rollout, Rollout) else None
    place = f"{position} of the batch"
    return place if question is None else f"{place} (question {shorten(question, 60)!r})"


def with_value(result: ScoreOrError) -> ScoreOrError:
    """Return the result, or a DataError for a score without a value."""
    if isinstance(result, Score) and result.value is None:
        return DataError("the recipe gives this rollout no reward", "response")
    return result
