"""The truthful helpfulness score of FaithRL: the progress of a policy beyond its initial policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.answer_text import AnswerCache, Reads
from rag_rewards.metrics.metric import Gauge, MetricBase, Parts, Values
from rag_rewards.metrics.truth import Truthfulness
from rag_rewards.rewards.answer_decision import Ask
from rag_rewards.rollout import Rollout
from rag_rewards.settings import check_choices
from rag_rewards.text.normalize import NormalizerName


def truthful_helpfulness(
    correct: float, wrong: float, correct_before: float, wrong_before: float
) -> float:
    """Return THS = (x1·y0 − y1·x0)/y0. Range −x0/y0 to 1.

    correct, wrong                x1 and y1, the shares of correct and wrong answers
    correct_before, wrong_before  x0 and y0, the same of the initial policy; y0 is above 0

    It is 0 for the initial policy, and for a policy with the same ratio of correct and wrong
    answers. Source: FaithRL (2602.03507).

    >>> round(truthful_helpfulness(0.5, 0.3, 0.4, 0.3), 6), truthful_helpfulness(0.4, 0.3, 0.4, 0.3)
    (0.1, 0.0)
    """
    return (correct * wrong_before - wrong * correct_before) / wrong_before


@dataclass(frozen=True, repr=False)
@check_choices
class TruthfulHelpfulness(MetricBase):
    """THS = (x1·y0 − y1·x0)/y0, and the shares of correct answers, abstentions and wrong answers.

    x1 and y1 are the shares of correct and wrong answers. `correct_rate` and `wrong_rate` are the
    same shares x0 and y0 of the initial policy, as in the recipe `truthrl` with `scheme=geometric`;
    both are required. The other settings are those of `truthfulness`. Source: FaithRL (2602.03507).
    """

    correct_rate: float = 0.0
    wrong_rate: float = 0.0
    verifier: str = "judge"
    normalizer: NormalizerName = "squad"
    reads: Reads = "box"
    ask: Ask = "undecided"

    name = "ths"

    def __post_init__(self) -> None:
        for setting in ("correct_rate", "wrong_rate"):
            if not 0 < getattr(self, setting) <= 1:
                raise UsageError(
                    f"metric ths: {setting} must be above 0 and at most 1: set it to the share "
                    "that `evaluate` measures of the initial policy, for example "
                    "ths(correct_rate=0.4,wrong_rate=0.3)"
                )
        self._shares  # noqa: B018 (raises for an invalid verifier)

    @property
    def _shares(self) -> Truthfulness:
        return Truthfulness(
            verifier=self.verifier,
            normalizer=self.normalizer,
            reads=self.reads,
            ask=self.ask,
        )

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._shares.parts

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        return self._shares.needs(rollout)

    def gauge(self, cache: AnswerCache) -> Gauge:
        return self._shares.gauge(cache)

    def values(self, sums: Parts) -> Values:
        values = dict(self._shares.values(sums))
        del values["truthfulness"]
        correct, wrong = values["accuracy"], values["hallucination"]
        if correct is None or wrong is None:
            return {self.name: None, **values}
        score = truthful_helpfulness(correct, wrong, self.correct_rate, self.wrong_rate)
        return {self.name: score, **values}
