"""A judge cascade: rules decide the certain answers, and a judge decides the others."""

from __future__ import annotations

from typing import Any, NamedTuple

from rag_rewards.errors import SettingError
from rag_rewards.evidence.needs import VerdictNeed, unmet
from rag_rewards.rollout import Rollout
from rag_rewards.text.certainty import RuleVerdict, rule_verdicts

CERTAINTY = 0.8
"""Default of the certainty below which a judge decides."""


class Decision(NamedTuple):
    """The decision of the rules on an answer.

    verdict    whether the answer is right; None if a judge decides
    certainty  certainty of the rules about the answer, 0.5 to 1
    rule       the rule that decided, see `text.certainty`
    """

    verdict: bool | None
    certainty: float
    rule: str

    def without_assertion(self) -> Decision:
        """Return the decision about an answer that does not assert the gold answer."""
        return self._replace(verdict=None, certainty=0.5)

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


def decide(text: str | None, rollout: Rollout, certainty: float = CERTAINTY) -> Decision:
    """Return the decision of the rules on a text as the answer of a rollout.

    A judge decides answers whose certainty is below `certainty`, 0.5 to 1. Several required answers
    must all be right.

    >>> row = Rollout(response="", question="Where was it?", answers="Paris")
    >>> for text in ("In Paris.", "In Rome.", "Not in Paris."):
    ...     decision = decide(text, row)
    ...     print(decision.verdict, decision.rule)
    True all words
    False words missing
    None all words
    """
    if not text or text.isspace():
        return NO_ANSWER
    decision = _combined(rule_verdicts(text, rollout.gold, rollout.question or ""))
    return decision if decision.certainty >= certainty else decision._replace(verdict=None)


def check_certainty(certainty: float) -> None:
    """Raise SettingError unless a certainty is from 0.5 to 1."""
    if not 0.5 <= certainty <= 1.0:
        raise SettingError(f"certainty must be from 0.5 to 1, found {certainty!r}")


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
