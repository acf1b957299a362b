"""Whether a question is answerable and whether it was answered: the answer rate.

The definitions are those of Trust-Score's evaluation code.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from rag_rewards.errors import DataError
from rag_rewards.metrics.answer_text import AnswerCache, Reads
from rag_rewards.metrics.metric import Gauge, MetricBase
from rag_rewards.rollout import Rollout
from rag_rewards.settings import check_choices
from rag_rewards.text.refusal import SHORT_REFUSAL, refusal_form

_REFUSAL = refusal_form(SHORT_REFUSAL)
_LEAST_SIMILARITY = 85.5
"""Trust-Score rounds the similarity to an integer, which must be above 85."""


def refuses(answer: str) -> bool:
    """Return whether an answer is a refusal: its partial similarity to the short one is above 85.

    The similarity is rapidfuzz's `partial_ratio` (0 to 100) of the `squad` forms with plain
    apostrophes, rounded to an integer. Source: Trust-Score's evaluation code.

    >>> refuses("Sadly: I apologize, but I couldn't find an answer."), refuses("It is Paris.")
    (True, False)
    """
    from rapidfuzz import fuzz

    return bool(fuzz.partial_ratio(_REFUSAL, refusal_form(answer), score_cutoff=_LEAST_SIMILARITY))


def supported_gold(rollout: Rollout) -> frozenset[int] | None:
    """Return the positions of the gold answers that some document supports.

    None if no document has `supports`. Raises DataError if a `supports` has a wrong length.
    """
    is_annotated = False
    supported: set[int] = set()
    for at in range(len(rollout.documents or ())):
        positions = supported_by(rollout, at)
        if positions is not None:
            is_annotated = True
            supported |= positions
    return frozenset(supported) if is_annotated else None


def supported_by(rollout: Rollout, at: int) -> frozenset[int] | None:
    """Return the positions of the gold answers that one document supports, or None if unknown.

    Raises DataError if `supports` has a wrong length.
    """
    supports = (rollout.documents or ())[at].supports
    if supports is None:
        return None
    if len(supports) != len(rollout.gold):
        raise DataError(
            f"one boolean per required answer: expected {len(rollout.gold)}, found {len(supports)}",
            f"documents[{at}].supports",
        )
    return frozenset(i for i, bit in enumerate(supports) if bit)


def is_answerable(rollout: Rollout) -> bool:
    """Return whether some document supports some gold answer.

    If no document has `supports`, `answerable` of the row decides. Raises DataError without both.
    """
    supported = supported_gold(rollout)
    if supported is not None:
        return bool(supported)
    if rollout.answerable is None:
        raise DataError("missing, and no document has `supports`", "answerable")
    return rollout.answerable


@dataclass(frozen=True, repr=False)
@check_choices
class AnswerRate(MetricBase):
    """Answered / all, and the ideal value: answerable / all. Range 0 to 1.

    Source: Ground-GRPO, section 3.4 (AR).
    """

    reads: Reads = "auto"

    name = "answer-rate"
    parts = ("answered", "answerable", "rows")
    main_ratio = ("answered", "rows")
    further_ratios = MappingProxyType({"ideal": ("answerable", "rows")})

    def gauge(self, cache: AnswerCache) -> Gauge:
        return lambda row: (
            float(not refuses(cache.answer(row, self.reads) or "")),
            float(is_answerable(row)),
            1.0,
        )
