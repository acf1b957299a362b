"""Process: whether the reasoning entails the answer (Ground-GRPO, Eq. 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rag_rewards.evidence.needs import EntailmentNeed, Need
from rag_rewards.rewards.format import Format
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import check_choices
from rag_rewards.text.citations import CITATION, compiled, strip_markers


@dataclass(frozen=True)
@check_choices
class Process:
    """The probability that the reasoning entails the decision, 0 without the format.

    The reasoning is the section `think`. The decision is the answer section without its markers.
    Raises DataError if the entailment is missing. Source: Ground-GRPO, section 4.7, Eq. 7.
    """

    format: Format
    pattern: str = CITATION
    name: str = "process"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        return [self._need(rollout)] if self.format.of(rollout) else []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [self._score(rollout) for rollout in rollouts]

    def _need(self, rollout: Rollout) -> EntailmentNeed:
        content = rollout.parsed.cut(self.format.tags).content
        decision = strip_markers(content["answer"], compiled(self.pattern))
        return EntailmentNeed(content["think"].strip(), decision)

    def _score(self, rollout: Rollout) -> Score:
        if not self.format.of(rollout):
            return Score(0.0)
        need = self._need(rollout)
        probability = rollout.entailment(need.premise, need.hypothesis)
        if probability is None:
            raise need.unmet()
        return Score(probability)
