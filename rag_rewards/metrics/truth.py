"""Correct, uncertain or hallucinated: one answer a row, a majority of k, any of k (TruthRL)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, ClassVar

from rag_rewards.errors import GroupError, UsageError
from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.answers import Gauge
from rag_rewards.metrics.metric import Parts, Unit, Values, identity, ratio
from rag_rewards.metrics.reading import Common, Reads, read_answer
from rag_rewards.rewards.truthfulness import Outcome, Truth
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.text.normalize import NormalizerName

Vote = tuple[str, Truth]
"""An answer in its normal form, "" for an abstention, and what it is worth."""


NO_ANSWER: Vote = ("\0", "incorrect")


def asks_a_verdict(metric: Any, rollout: Rollout) -> list[Need]:
    """What a judge must say about a row's answer, where the metric's verifier is one."""
    outcome = outcome_of(metric.verifier, metric.normalizer)
    return outcome.needs_of(rollout, read_answer(rollout, metric.reads))


def votes(metric: Any, common: Common) -> Callable[[ScoredRow], Vote]:
    """What a row answers, as the metric reads it, and what that is worth."""
    outcome = outcome_of(metric.verifier, metric.normalizer)
    forms, reads = common.forms(metric.normalizer), metric.reads

    def vote(row: ScoredRow) -> Vote:
        answer = common.answer(row, reads)
        truth = outcome.truth_of(row, answer, forms)
        if truth == "uncertain":
            return "", truth
        said = (answer or "").strip()
        if not said:
            return NO_ANSWER
        return forms.normalize(said) or f"\0{said.casefold()}", truth

    return vote


def outcome_of(verifier: str, normalizer: NormalizerName) -> Outcome:
    """TruthRL's reading of an answer. UsageError for a verifier that there is not."""
    try:
        return Outcome(verifier=verifier, normalizer=normalizer)
    except ValueError as error:
        raise UsageError(str(error)) from None


def truthfulness(
    accuracy: float,
    uncertainty: float,
    hallucination: float,
    weights: tuple[float, float, float] = (1.0, 0.0, 1.0),
) -> float:
    """w1·Acc + w2·Unc − w3·Hall. Range −w3 to max(w1, w2). Source: TruthRL, section 2.1.

    >>> truthfulness(0.5, 0.3, 0.2)
    0.3
    """
    w1, w2, w3 = weights
    return w1 * accuracy + w2 * uncertainty - w3 * hallucination


@dataclass(frozen=True, repr=False)
class Truthfulness:
    """w1·Acc + w2·Unc − w3·Hall, with its three parts. Source: TruthRL, section 2.1.

    The box is read unless `reads` says otherwise; a missing box is a hallucination. `verifier`
    as in the recipe `truthrl`: judge (an exact match skips it), exact, substring, f1>=x.
    """

    w1: float = 1.0
    w2: float = 0.0
    w3: float = 1.0
    verifier: str = "judge"
    normalizer: NormalizerName = "squad"
    reads: Reads = "box"

    name = "truthfulness"
    unit: ClassVar[Unit] = "row"
    parts = ("correct", "uncertain", "rows")
    needs = asks_a_verdict
    __repr__ = identity

    def __post_init__(self) -> None:
        outcome_of(self.verifier, self.normalizer)

    def gauge(self, common: Common) -> Gauge:
        vote = votes(self, common)

        def measure(row: ScoredRow) -> tuple[float, ...]:
            truth = vote(row)[1]
            return float(truth == "correct"), float(truth == "uncertain"), 1.0

        return measure

    def values(self, sums: Parts) -> Values:
        if not (rows := sums["rows"]):
            return dict.fromkeys((self.name, "accuracy", "uncertainty", "hallucination"))
        right, unsure = sums["correct"] / rows, sums["uncertain"] / rows
        wrong = (rows - sums["correct"] - sums["uncertain"]) / rows
        return {
            self.name: truthfulness(right, unsure, wrong, (self.w1, self.w2, self.w3)),
            "accuracy": right,
            "uncertainty": unsure,
            "hallucination": wrong,
        }


def majority(votes: Sequence[Vote]) -> Truth:
    """What the most frequent answer is worth; the earliest of equally frequent ones wins.

    Responses without an answer do not vote; where none has one, that is a hallucination.

    >>> majority([("rome", "incorrect"), ("paris", "correct"), ("paris", "correct")])
    'correct'
    """
    voting = [vote for vote in votes if vote != NO_ANSWER]
    if not voting:
        return "incorrect"
    count = Counter(form for form, _ in voting)
    most = max(count.values())
    return next(truth for form, truth in voting if count[form] == most)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """1 − C(n−c, k)/C(n, k): P(one of k drawn from n, of which c are right, is right).

    Range 0 to 1. Source: Chen et al. 2021, Eq. 1 (the unbiased estimator).

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    return 1.0 - comb(n - correct, k) / comb(n, k)


@dataclass(frozen=True, repr=False)
class MajorityAtK:
    """The majority over the normalised answers of a group's first k rollouts, abstaining being one.

    Values: accuracy, abstention and hallucination of that majority, shares of the groups. Range 0
    to 1. Groups with fewer than k rollouts are left out and counted. Source: TruthRL, section 2.3.
    """

    k: int
    verifier: str = "exact"
    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"

    unit: ClassVar[Unit] = "group"
    needs = asks_a_verdict
    gauge = votes
    __repr__ = identity

    def __post_init__(self) -> None:
        outcome_of(self.verifier, self.normalizer)
        check_k(self.k)

    @property
    def name(self) -> str:
        return f"majority@{self.k}"

    def fold(self, marks: Sequence[Vote]) -> Parts:
        if len(marks) < self.k:
            raise GroupError(f"fewer than {self.k} rollouts")
        truth = majority(marks[: self.k])
        return {
            "correct": float(truth == "correct"),
            "abstained": float(truth == "uncertain"),
            "groups": 1.0,
        }

    def values(self, sums: Parts) -> Values:
        groups, right, unsure = (sums.get(p, 0.0) for p in ("groups", "correct", "abstained"))
        return {
            self.name: ratio(right, groups),
            "abstention": ratio(unsure, groups),
            "hallucination": ratio(groups - right - unsure, groups),
        }


@dataclass(frozen=True, repr=False)
class PassAtK:
    """Mean over groups of the unbiased P(one of k responses is right). Range 0 to 1.

    Groups with fewer than k rollouts are left out and counted. Source: Chen et al. 2021, Eq. 1.
    """

    k: int
    verifier: str = "exact"
    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"

    unit: ClassVar[Unit] = "group"
    needs = asks_a_verdict
    gauge = votes
    __repr__ = identity

    def __post_init__(self) -> None:
        outcome_of(self.verifier, self.normalizer)
        check_k(self.k)

    @property
    def name(self) -> str:
        return f"pass@{self.k}"

    def fold(self, marks: Sequence[Vote]) -> Parts:
        if len(marks) < self.k:
            raise GroupError(f"fewer than {self.k} rollouts")
        correct = sum(truth == "correct" for _, truth in marks)
        return {"passed": pass_at_k(len(marks), correct, self.k), "groups": 1.0}

    def values(self, sums: Parts) -> Values:
        return {self.name: ratio(sums.get("passed", 0.0), sums.get("groups", 0.0))}


def check_k(k: int) -> None:
    if k < 1:
        raise UsageError(f"k is at least 1, found {k}")
