"""What becomes of a rollout that has no score while a trainer runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rag_rewards.errors import DataError, RolloutError
from rag_rewards.rollout import Score, ScoreOrError

log = logging.getLogger("rag_rewards")


class Unscored:
    """Errors of a trainer's batches: raised at first, later counted, and raised when all fail.

    In the first batch an error is raised: data or settings are wrong, and no training is lost.
    Later the rollout has no score, which is counted (`count`) and logged; `patience` batches in
    a row without a single score are raised again, for nothing would be learned from there on.
    A score whose value is None is none.
    """

    def __init__(self, patience: int = 3) -> None:
        self.patience = patience
        self.count = 0
        self._started = False
        self._barren = 0

    def settle(
        self, results: Sequence[ScoreOrError], rows: Sequence[int] = ()
    ) -> list[Score | None]:
        """The scores, None where there is none. Raises the first RolloutError as said above.

        `rows` are positions in the batch, which name the errors of rows that have no id.
        """
        results = [_valued(result) for result in results]
        for result, row in zip(results, rows, strict=False):
            if isinstance(result, RolloutError) and result.row is None:
                result.row = f"{row} of the batch"
        scores = [result if isinstance(result, Score) else None for result in results]
        errors = [result for result in results if isinstance(result, RolloutError)]
        if errors and not self._started:
            raise errors[0]
        self._started = True
        self.count += len(errors)
        if errors:
            log.warning("%d of %d rollouts have no score: %s", len(errors), len(scores), errors[0])
        self._barren = self._barren + 1 if errors and len(errors) == len(scores) else 0
        if self._barren >= self.patience:
            raise errors[0]
        return scores


def _valued(result: ScoreOrError) -> ScoreOrError:
    """A score that has a value, or the error that there is none."""
    if isinstance(result, Score) and result.value is None:
        return DataError("the recipe gives this rollout no reward", "response")
    return result
