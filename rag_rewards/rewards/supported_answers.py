"""The number of required answers that the documents of a row support."""

from __future__ import annotations

from rag_rewards.rollout import Rollout


def supported_answers(rollout: Rollout) -> int:
    """Return the number of required answers that a document supports; all if that is unknown.

    Also a row whose documents support none of them has all. Raises DataError if `supports` of a
    document does not have one boolean per required answer.
    """
    return len(rollout.supported_gold) or len(rollout.gold)
