"""Decisions on the answer of a rollout: by rules, or by a judge where the rules decide nothing."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from rag_rewards.evidence.needs import VerdictNeed
from rag_rewards.matching.decide import AnswerDecision, decide
from rag_rewards.rollout import Rollout

Undecided = Literal["match", "wrong", "judge"]
"""What decides on an answer.

match  the metric alone, as published
wrong  `matching.decide`; an undecided answer is wrong
judge  `matching.decide`; a judge decides on an undecided answer
"""
Ask = Literal["undecided", "doubtful"]
"""Answers that a judge decides on: undecided ones, or also right ones that equal no gold answer."""

UNDECIDED = (
    "match: the comparison alone decides; wrong and judge: an answer is right only if every word "
    "of it is explained; one that is neither right nor wrong is wrong, or a judge decides",
    "ours: match, as published",
)
ASK = (
    "answers that a judge decides on, where one decides; undecided: those that are neither right "
    "nor wrong; doubtful: also right ones that equal no gold answer",
    "ours: the fewest questions",
)


class Decision(NamedTuple):
    """The decision of the rules on an answer.

    value, reason  see `matching.decide.AnswerDecision`
    is_judged      whether a judge decides instead
    """

    value: Literal["right", "wrong", "undecided"]
    reason: str
    is_judged: bool = False

    def is_right(self, rollout: Rollout, component: str) -> bool:
        """Return whether the answer is right, by the rules or by the verdict on this component.

        Raises DataError if the rollout lacks a required verdict.
        """
        if not self.is_judged:
            return self.value == "right"
        verdict = rollout.verdict(component)
        if verdict is None:
            raise VerdictNeed(component).unmet()
        return verdict == 1

    @property
    def details(self) -> dict[str, Any]:
        """The decision, its reason, and who decided, as details of a score."""
        decided_by = {"decided_by": "judge"} if self.is_judged else {}
        return {"decision": self.value, "decision_reason": self.reason, **decided_by}


EMPTY = Decision("wrong", "empty")


def decide_answer(
    text: str | None, rollout: Rollout, *, judge: bool = True, ask: Ask = "undecided"
) -> Decision:
    """Return the decision on a text as the answer of a rollout.

    judge  whether a judge decides on what the rules leave undecided
    ask    which answers it decides on

    >>> row = Rollout(response="", question="Where was it?", answers="Paris")
    >>> [decide_answer(text, row).value for text in ("In Paris.", "In Rome.", "")]
    ['right', 'undecided', 'wrong']
    """
    value, reason = _decide(text, rollout)
    is_doubtful = value == "undecided" or (
        ask == "doubtful" and value == "right" and reason != "equal"
    )
    return Decision(value, reason, judge and is_doubtful)


def _decide(text: str | None, rollout: Rollout) -> AnswerDecision:
    context: tuple[str, ...] = ()
    if text and ("," in text or "(" in text):  # "Paris, France"
        context = tuple([document.text for document in rollout.documents or ()])
    return decide(text, rollout.gold, rollout.question or "", context)
