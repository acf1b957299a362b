"""The log message of a trainer that can use only the sum of the rewards of the turns."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rag_rewards.rollout import Score

log = logging.getLogger("rag_rewards")
SUMMED = "turn rewards are summed: this trainer has no turn credit"
"""The message for a trainer that can use only the sum of the rewards of turns."""


class TurnSums:
    """Logs once that the rewards of turns are summed.

    way_out  what gives turns their own advantages in this trainer, if anything does
    """

    def __init__(self, way_out: str = "") -> None:
        self._message = f"{SUMMED}; {way_out}" if way_out else SUMMED
        self._has_logged = False

    def check(self, scores: Sequence[Score | None]) -> None:
        """Log the message if a score has a reward at a turn before the last one."""
        if self._has_logged or not any(map(_has_process_reward, scores)):
            return
        self._has_logged = True
        log.warning(self._message)


def _has_process_reward(score: Score | None) -> bool:
    return score is not None and any(entry is not None for entry in score.turns[:-1])
