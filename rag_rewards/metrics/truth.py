"""Metrics of correct, uncertain and hallucinated answers: truthfulness, majority@k and pass@k."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Protocol

from rag_rewards.errors import GroupError, UsageError
from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.answer_text import AnswerCache, Reads, read_answer
from rag_rewards.metrics.metric import Gauge, MetricBase, Parts, Values, ratio
from rag_rewards.rewards.answer_decision import Ask, Decision
from rag_rewards.rewards.truthfulness import Outcome, Truth
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.normalize import NormalizerName

Vote = tuple[str, Truth]
"""The normalized answer ("" for an abstention), and whether it is correct."""
NO_ANSWER: Vote = ("\0", "incorrect")
Mark = tuple[Vote, bool | None]
"""The vote of a rollout, and whether a judge decided it; None if the verifier is no cascade."""


class _VerifiedMetric(Protocol):
    """A metric that verifies the answer."""

    @property
    def verifier(self) -> str: ...
    @property
    def normalizer(self) -> NormalizerName: ...
    @property
    def reads(self) -> Reads: ...
    @property
    def ask(self) -> Ask: ...


def _verdict_needs(metric: _VerifiedMetric, rollout: Rollout) -> list[Need]:
    """Return the needs for a verdict of a judge, if the verifier is a judge."""
    outcome = outcome_of(metric.verifier, metric.normalizer, metric.ask)
    return outcome.needs_of(rollout, read_answer(rollout, metric.reads))


def _vote_gauge(metric: _VerifiedMetric, cache: AnswerCache) -> Callable[[ScoredRow], Mark]:
    """Return a function from a row to its vote and its judge."""
    outcome = outcome_of(metric.verifier, metric.normalizer, metric.ask)
    forms, reads = cache.forms(metric.normalizer), metric.reads

    def mark(row: ScoredRow) -> Mark:
        answer = cache.answer(row, reads)
        truth, decision = outcome.verify(row, answer, forms)
        is_judged = None if decision is None else decision.is_judged
        if truth == "uncertain":
            return ("", truth), is_judged
        text = (answer or "").strip()
        if not text:
            return NO_ANSWER, is_judged
        return (forms.normalize(text) or f"\0{text.casefold()}", truth), is_judged

    return mark


def _judged(marks: Sequence[Mark]) -> Parts:
    """Return how many of the rollouts of a cascade a judge decides; nothing without a cascade."""
    flags = [is_judged for _, is_judged in marks if is_judged is not None]
    return {"judged": float(sum(flags)), "rows": float(len(flags))} if flags else {}


def _judge_share(sums: Parts) -> Values:
    return {"judge_share": ratio(sums["judged"], sums["rows"])} if "judged" in sums else {}


def outcome_of(verifier: str, normalizer: NormalizerName, ask: Ask = "undecided") -> Outcome:
    """Return TruthRL's classification of answers. Raises SettingError for invalid arguments."""
    return Outcome(verifier=verifier, normalizer=normalizer, ask=ask)


def truthfulness(
    accuracy: float,
    uncertainty: float,
    hallucination: float,
    weights: tuple[float, float, float] = (1.0, 0.0, 1.0),
) -> float:
    """Return w1·Acc + w2·Unc − w3·Hall. Range −w3 to max(w1, w2). Source: TruthRL, section 2.1.

    >>> truthfulness(0.5, 0.3, 0.2)
    0.3
    """
    w1, w2, w3 = weights
    return w1 * accuracy + w2 * uncertainty - w3 * hallucination


@dataclass(frozen=True, repr=False)
@check_choices
class Truthfulness(MetricBase):
    """w1·Acc + w2·Unc − w3·Hall, and the three shares. Source: TruthRL, section 2.1.

    By default, the answer is the box, and a missing box is a hallucination. `verifier` is that of
    the recipe `truthrl`: judge (skipped after an exact match), cascade, exact, substring or f1>=x.
    With cascade, a judge decides on the answers that rules leave undecided (see the setting
    `ask`), and `judge_share` is the share of these answers. A row whose verdict is missing is
    excluded from all shares.
    """

    w1: float = 1.0
    w2: float = 0.0
    w3: float = 1.0
    verifier: str = "judge"
    normalizer: NormalizerName = "squad"
    reads: Reads = "box"
    ask: Ask = "undecided"

    name = "truthfulness"
    needs = _verdict_needs

    def __post_init__(self) -> None:
        outcome_of(self.verifier, self.normalizer, self.ask)

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("correct", "uncertain", "rows", *(["judged"] if self._is_cascade else []))

    @property
    def _is_cascade(self) -> bool:
        return self.verifier == "cascade"

    def gauge(self, cache: AnswerCache) -> Gauge:
        outcome = outcome_of(self.verifier, self.normalizer, self.ask)
        forms = cache.forms(self.normalizer)

        def measure(row: ScoredRow) -> tuple[float, ...]:
            truth, decision = outcome.verify(row, cache.answer(row, self.reads), forms)
            numbers = (float(truth == "correct"), float(truth == "uncertain"), 1.0)
            if not isinstance(decision, Decision):
                return numbers
            return (*numbers, float(decision.is_judged))

        return measure

    def values(self, sums: Parts) -> Values:
        if not (rows := sums["rows"]):
            return dict.fromkeys((self.name, "accuracy", "uncertainty", "hallucination"))
        accuracy, uncertainty = sums["correct"] / rows, sums["uncertain"] / rows
        hallucination = (rows - sums["correct"] - sums["uncertain"]) / rows
        weights = (self.w1, self.w2, self.w3)
        values: Values = {
            self.name: truthfulness(accuracy, uncertainty, hallucination, weights),
            "accuracy": accuracy,
            "uncertainty": uncertainty,
            "hallucination": hallucination,
        }
        if self._is_cascade:
            values["judge_share"] = sums["judged"] / rows
        return values


def majority(votes: Sequence[Vote]) -> Truth:
    """Return the truth of the most frequent answer; the earliest of equally frequent ones wins.

    Responses without an answer do not vote. If no response has an answer, the result is incorrect.

    >>> majority([("rome", "incorrect"), ("paris", "correct"), ("paris", "correct")])
    'correct'
    """
    answers = [vote for vote in votes if vote != NO_ANSWER]
    if not answers:
        return "incorrect"
    count = Counter(form for form, _ in answers)
    most = max(count.values())
    return next(truth for form, truth in answers if count[form] == most)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return 1 − C(n−c, k)/C(n, k): the probability that at least one of k responses is right.

    The k responses are drawn from n responses, of which c (`correct`) are right. Range 0 to 1.
    Source: Chen et al. 2021, Eq. 1 (the unbiased estimator).

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    return 1.0 - comb(n - correct, k) / comb(n, k)


@dataclass(frozen=True, repr=False)
@check_choices
class MajorityAtK(MetricBase):
    """Accuracy, abstention and hallucination of the majority of a group's first k rollouts.

    The values are shares of the groups. Range 0 to 1. Normalized answers are compared, and all
    abstentions are equal. Groups with fewer than k rollouts are excluded and counted. With
    `verifier=cascade`, `judge_share` is the share of these rollouts that a judge decides. Source:
    TruthRL, section 2.3.
    """

    k: int
    verifier: str = "exact"
    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"
    ask: Ask = "undecided"

    unit = "group"
    needs = _verdict_needs
    gauge = _vote_gauge

    def __post_init__(self) -> None:
        outcome_of(self.verifier, self.normalizer, self.ask)
        check_k(self.k)

    @property
    def name(self) -> str:
        return f"majority@{self.k}"

    def fold(self, marks: Sequence[Mark]) -> Parts:
        if len(marks) < self.k:
            raise GroupError(f"fewer than {self.k} rollouts")
        first = marks[: self.k]
        truth = majority([vote for vote, _ in first])
        return {
            "correct": float(truth == "correct"),
            "abstained": float(truth == "uncertain"),
            "groups": 1.0,
            **_judged(first),
        }

    def values(self, sums: Parts) -> Values:
        groups, correct, abstained = (sums.get(p, 0.0) for p in ("groups", "correct", "abstained"))
        return {
            self.name: ratio(correct, groups),
            "abstention": ratio(abstained, groups),
            "hallucination": ratio(groups - correct - abstained, groups),
            **_judge_share(sums),
        }


@dataclass(frozen=True, repr=False)
@check_choices
class PassAtK(MetricBase):
    """Mean over groups of the probability that at least one of k responses is right. Range 0 to 1.

    The estimator is unbiased. Groups with fewer than k rollouts are excluded and counted. With
    `verifier=cascade`, `judge_share` is the share of the rollouts that a judge decides. Source:
    Chen et al. 2021, Eq. 1.
    """

    k: int
    verifier: str = "exact"
    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"
    ask: Ask = "undecided"

    unit = "group"
    main_ratio = ("passed", "groups")
    needs = _verdict_needs
    gauge = _vote_gauge

    def __post_init__(self) -> None:
        outcome_of(self.verifier, self.normalizer, self.ask)
        check_k(self.k)

    @property
    def name(self) -> str:
        return f"pass@{self.k}"

    def fold(self, marks: Sequence[Mark]) -> Parts:
        if len(marks) < self.k:
            raise GroupError(f"fewer than {self.k} rollouts")
        correct = sum(truth == "correct" for (_, truth), _ in marks)
        passed = pass_at_k(len(marks), correct, self.k)
        return {"passed": passed, "groups": 1.0, **_judged(marks)}

    def values(self, sums: Parts) -> Values:
        return {**super().values(sums), **_judge_share(sums)}


def check_k(k: int) -> None:
    """Raise UsageError unless k is at least 1."""
    if k < 1:
        raise UsageError(f"k must be at least 1, found {k}")
