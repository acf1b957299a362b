"""How the answers of scored rows were decided, for counts, shares and warnings."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rag_rewards.rollout import Score, ScoreOrError

log = logging.getLogger("rag_rewards")

MOST_UNDECIDED = 0.1
"""The share of undecided answers above which a warning names what to do."""
LEAST_ANSWERS = 50
"""The number of answers of a run from which `UndecidedCheck` compares their share."""
NOTHING = "nothing in common"
"""The reason for an undecided answer that shares no word with a gold answer."""


def decided_as(details: Mapping[str, Any]) -> str | None:
    """Return how an answer was decided, from the details of its score, for counts.

    This is `right`, `wrong`, `undecided`, `nothing in common` (undecided, without a word of a gold
    answer), `judge`, or None if no rules decided on it.
    """
    decision = details.get("decision")
    if details.get("decided_by") == "judge":
        return "judge"
    if decision in ("right", "wrong"):
        return str(decision)
    if decision != "undecided":  # a detail of another reward
        return None
    return NOTHING if details.get("decision_reason") == NOTHING else "undecided"


def decisions_of(scores: Iterable[ScoreOrError | None]) -> Counter[str]:
    """Return the counts of `decided_as` over the scores that have a decision."""
    decisions = (decided_as(each.details) for each in scores if isinstance(each, Score))
    return Counter(decision for decision in decisions if decision)


def undecided_share(decisions: Mapping[str, int]) -> float | None:
    """Return the share of undecided answers; None without an answer.

    Answers with nothing in common with a gold answer, and those that a judge decided on, count as
    decided.

    >>> undecided_share({"right": 2, "undecided": 1, "nothing in common": 1})
    0.25
    """
    answers = sum(decisions.values())
    return decisions.get("undecided", 0) / answers if answers else None


def undecided_parts(decisions: Mapping[str, int]) -> tuple[str, str] | None:
    """Return a message and its fix if the share of undecided answers is large, else None.

    decisions  counts by `decided_as`
    """
    share = undecided_share(decisions)
    if share is None or share <= MOST_UNDECIDED:
        return None
    undecided, answers = decisions["undecided"], sum(decisions.values())
    return (
        f"{undecided:,} of {answers:,} answers ({share:.0%}) are neither right nor wrong by rules "
        "and count as wrong",
        "let a judge decide (undecided=judge, where the recipe has this value), or request the "
        "form of the answer in the prompt (prepare --hardened)",
    )


def undecided_warning(decisions: Mapping[str, int]) -> str | None:
    """Return the message of `undecided_parts` with its fix as one text; None if there is none."""
    parts = undecided_parts(decisions)
    return parts and ": ".join(parts)


class UndecidedCheck:
    """Logs once in a run that many answers are undecided."""

    def __init__(self) -> None:
        self._decisions: Counter[str] = Counter()
        self._has_logged = False

    def check(self, results: Iterable[ScoreOrError]) -> None:
        """Count the decisions on answers, and log the warning when it is due."""
        if self._has_logged:
            return
        self._decisions += decisions_of(results)
        if self._decisions.total() < LEAST_ANSWERS:
            return
        if warning := undecided_warning(self._decisions):
            self._has_logged = True
            log.warning(warning)
