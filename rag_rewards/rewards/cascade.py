"""A judge cascade: rules decide the certain answers, and a judge decides the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from rag_rewards.evidence.needs import VerdictNeed, unmet
from rag_rewards.rollout import Rollout
from rag_rewards.text.certainty import RuleVerdict, rule_verdicts
from rag_rewards.text.strict import LONGEST_ANSWER

CERTAINTY = 0.8
"""Default of the certainty below which a judge decides."""


class Decision(NamedTuple):
    """The decision of the rules on an answer.

    verdict    whether the answer is right; None if a judge decides
    certainty  probability of the verdict according to the rules, 0.5 to 1
    rule       the rule that decided, see `text.certainty`
    """

    verdict: bool | None
    certainty: float
    rule: str

    def is_right(self, rollout: Rollout, component: str) -> bool:
        """Return the verdict of the rules, or that of the judge on this component.

        Raises DataError if the rollout lacks the verdict of the judge.
        """
        if self.verdict is not None:
            return self.verdict
        verdict = rollout.verdict(component)
        if verdict is None:
            raise unmet(VerdictNeed(component))
        return verdict == 1

    @property
    def details(self) -> dict[str, Any]:
        """Who decided, the rule, and its certainty, as details of a score."""
        decided_by = "judge" if self.verdict is None else "rules"
        return {"decided_by": decided_by, "rule": self.rule, "certainty": self.certainty}


NO_ANSWER = Decision(False, 1.0, "no answer")


@dataclass(frozen=True)
class Cascade:
    """The rules of a judge cascade.

    certainty  the judge decides answers whose certainty is below this value, 0.5 to 1
    strict     an answer is right without a judge only if it asserts the gold answer in at most 60
               words, see `text.strict`

    Several required answers must all be right.

    >>> row = Rollout(response="", question="Where was it?", answers="Paris")
    >>> for text in ("In Paris.", "In Rome.", "Not in Paris."):
    ...     decision = Cascade().decide(text, row)
    ...     print(decision.verdict, decision.rule)
    True all words
    False words missing
    None all words
    """

    certainty: float = CERTAINTY
    strict: bool = False

    def __post_init__(self) -> None:
        if not 0.5 <= self.certainty <= 1.0:
            raise ValueError(f"certainty must be from 0.5 to 1, found {self.certainty!r}")

    def decide(self, text: str | None, rollout: Rollout) -> Decision:
        """Return the decision on a text as the answer of a rollout."""
        if not text or text.isspace():
            return NO_ANSWER
        verdicts = rule_verdicts(text, rollout.gold, rollout.question or "")
        decision = _combined(verdicts)
        if decision.certainty < self.certainty:
            return decision._replace(verdict=None)
        is_asserted = (
            all(verdict.is_asserted for verdict in verdicts) and len(text.split()) <= LONGEST_ANSWER
        )
        if decision.verdict and self.strict and not is_asserted:
            return Decision(None, 0.5, decision.rule)
        return decision


def _combined(verdicts: list[RuleVerdict]) -> Decision:
    """Return the decision on several required answers.

    The certainty that all are right is that of the least certain one, and the certainty that one
    is wrong is that of the most certain wrong one.
    """
    wrong = [verdict for verdict in verdicts if not verdict.is_right]
    if wrong:
        most = max(wrong, key=lambda verdict: verdict.certainty)
        return Decision(False, most.certainty, most.rule)
    least = min(verdicts, key=lambda verdict: verdict.certainty)
    return Decision(True, least.certainty, least.rule)
