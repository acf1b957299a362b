"""Accuracy according to a judge cascade, and the share of answers that the judge decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rag_rewards.evidence.needs import Need, VerdictNeed
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.metrics.answer_text import AnswerCache, Reads, read_answer
from rag_rewards.metrics.metric import Gauge, MetricBase
from rag_rewards.rewards.answer import judge_references
from rag_rewards.rewards.answer_decision import Ask, decide_answer
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices

COMPONENT = "accuracy"
"""Name of the verdict in the row."""


@dataclass(frozen=True, repr=False)
@check_choices
class CascadeAccuracy(MetricBase):
    """(1/N) Σ 1[the answer is right], where a judge decides on answers that rules leave undecided.

    Range 0 to 1. The rules are those of `matching.decide`. `judge_share` is the share of the
    answers that the judge decides on; with ask="doubtful", these are also right ones that equal no
    gold answer. The judge gets the question of ARENA. If several answers are required, the answer
    must contain all of them.
    """

    ask: Ask = "undecided"
    reads: Reads = "auto"

    name = "cascade"
    parts = ("right", "judged", "rows")
    further_ratios = MappingProxyType({"judge_share": ("judged", "rows")})

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        text = (read_answer(rollout, self.reads) or "").strip()
        if not decide_answer(text, rollout, ask=self.ask).is_judged:
            return ()
        gold = judge_references(rollout.gold)
        question = JudgeQuestion("accuracy", rollout.question or "", text, gold)
        return [VerdictNeed(COMPONENT, (question,))]

    def gauge(self, cache: AnswerCache) -> Gauge:
        def measure(row: ScoredRow) -> tuple[float, ...]:
            text = (cache.answer(row, self.reads) or "").strip()
            decision = decide_answer(text, row, ask=self.ask)
            is_right = decision.is_right(row, COMPONENT)
            return float(is_right), float(decision.is_judged), 1.0

        return measure
