"""The number of required answers that the documents of a row support."""

from __future__ import annotations

from rag_rewards.errors import DataError
from rag_rewards.rollout import Rollout


def supported_answers(rollout: Rollout) -> int:
    """Return the number of required answers that a document supports; all if that is unknown.

    Raises DataError if `supports` of a document does not have one boolean per required answer.
    """
    n = len(rollout.gold)
    supported: set[int] = set()
    is_known = False
    for at, document in enumerate(rollout.documents or ()):
        if document.supports is None:
            continue
        if len(document.supports) != n:
            raise DataError(
                f"one boolean per required answer: expected {n}, found {len(document.supports)}",
                f"documents[{at}].supports",
            )
        is_known = True
        supported.update(i for i, bit in enumerate(document.supports) if bit)
    return len(supported) or n if is_known else n
