"""Metrics of correct, uncertain and hallucinated answers, and of the reasoning for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import get_args

from rag_rewards.errors import GroupError, UsageError
from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.metric import (
    AnswerCache,
    Gauge,
    MetricBase,
    Parts,
    Reads,
    Values,
    check_k,
    ratio,
    read_answer,
)
from rag_rewards.rewards.correctness import CascadeUndecided
from rag_rewards.rewards.truthfulness import Outcome, Reasoning, Truth
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.normalize import NormalizerName, normalizer

_TRUTHS: tuple[Truth, ...] = get_args(Truth)
_REASONING = Reasoning()
Vote = tuple[str, Truth]
"""The normalized answer ("" for an abstention), and whether it is correct."""
NO_ANSWER: Vote = ("\0", "incorrect")
Judged = tuple[float, ...]
"""Whether a judge decided, 1 or 0; empty if the verifier is no cascade."""
Mark = tuple[Vote, Judged]


class Verified:
    """A metric that verifies the answer as the recipe `truthrl` does."""

    verifier: str
    normalizer: NormalizerName
    reads: Reads
    undecided: CascadeUndecided

    def __post_init__(self) -> None:
        self.outcome  # noqa: B018 (raises SettingError for an invalid verifier)

    @property
    def outcome(self) -> Outcome:
        """TruthRL's classification of answers."""
        undecided = self.undecided if self.is_cascade else "match"
        return Outcome(verifier=self.verifier, normalizer=self.normalizer, undecided=undecided)

    @property
    def is_cascade(self) -> bool:
        """Whether the part `judged` counts the answers on which a judge decides."""
        return self.verifier == "cascade"

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        return self.outcome.needs_of(rollout, read_answer(rollout, self.reads))

    def truth_gauge(self, cache: AnswerCache) -> Callable[[ScoredRow], tuple[Truth, Judged]]:
        """Return a function from a row to the truth value of its answer, and its judge."""
        outcome, reads = self.outcome, self.reads

        def measure(row: ScoredRow) -> tuple[Truth, Judged]:
            truth, decision = outcome.verify(row, cache.answer(row, reads))
            return truth, () if decision is None else (float(decision.is_judged),)

        return measure


# --- rows ----------------------------------------------------------------------------------------


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
class Truthfulness(Verified, MetricBase):
    """w1·Acc + w2·Unc − w3·Hall, and the three shares. Source: TruthRL, section 2.1.

    By default, the answer is the box, and a missing box is a hallucination. `verifier` is that of
    the recipe `truthrl`: judge (skipped after an exact match), cascade, exact, substring or f1>=x.
    With cascade, a judge decides on the answers that rules leave undecided (see the setting
    `undecided`), and `judge_share` is the share of these answers. A row whose verdict is missing is
    excluded from all shares.
    """

    w1: float = 1.0
    w2: float = 0.0
    w3: float = 1.0
    verifier: str = "judge"
    normalizer: NormalizerName = "squad"
    reads: Reads = "box"
    undecided: CascadeUndecided = "judge"

    name = "truthfulness"

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("correct", "uncertain", "rows", *["judged"] * self.is_cascade)

    def gauge(self, cache: AnswerCache) -> Gauge:
        truth_of = self.truth_gauge(cache)

        def measure(row: ScoredRow) -> tuple[float, ...]:
            truth, judged = truth_of(row)
            return float(truth == "correct"), float(truth == "uncertain"), 1.0, *judged

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
        if self.is_cascade:
            values["judge_share"] = sums["judged"] / rows
        return values


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
class TruthfulHelpfulness(Verified, MetricBase):
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
    undecided: CascadeUndecided = "judge"

    name = "ths"

    def __post_init__(self) -> None:
        for setting in ("correct_rate", "wrong_rate"):
            if not 0 < getattr(self, setting) <= 1:
                raise UsageError(
                    f"metric ths: {setting} must be above 0 and at most 1: set it to the share "
                    "that `evaluate` measures of the initial policy, for example "
                    "ths(correct_rate=0.4,wrong_rate=0.3)"
                )
        super().__post_init__()

    @property
    def _shares(self) -> Truthfulness:
        return Truthfulness(
            verifier=self.verifier,
            normalizer=self.normalizer,
            reads=self.reads,
            undecided=self.undecided,
        )

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._shares.parts

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


@dataclass(frozen=True, repr=False)
@check_choices
class ReasoningScore(Verified, MetricBase):
    """(1/N) Σ r_r: the share of responses whose reasoning a judge accepts. Range 0 to 1.

    The verdict `reasoning` is that of the component `reasoning` of the recipe `truthrl`. Further
    values are the same share of the responses whose answer is `correct`, `uncertain` or
    `incorrect`; `verifier`, `normalizer`, `reads` and `undecided` decide this as in
    `truthfulness`, and with `verifier=cascade`, `judge_share` has the same meaning as there.
    A blank response gets 0 without a verdict. Source: TruthRL, section 4.6, Tables 8 and 12.
    """

    verifier: str = "judge"
    normalizer: NormalizerName = "squad"
    reads: Reads = "box"
    undecided: CascadeUndecided = "judge"

    name = "reasoning-score"
    main_ratio = ("accepted", "rows")

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        accepted = (f"accepted:{truth}" for truth in _TRUTHS)
        return ("accepted", "rows", *_TRUTHS, *accepted, *["judged"] * self.is_cascade)

    @property
    def further_ratios(self) -> Mapping[str, tuple[str, str]]:  # type: ignore[override]
        ratios = {str(truth): (f"accepted:{truth}", str(truth)) for truth in _TRUTHS}
        return ratios | ({"judge_share": ("judged", "rows")} if self.is_cascade else {})

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        return [*_REASONING.needs(rollout), *super().needs(rollout)]

    def gauge(self, cache: AnswerCache) -> Gauge:
        truth_of = self.truth_gauge(cache)

        def measure(row: ScoredRow) -> tuple[float, ...]:
            truth, judged = truth_of(row)
            score = _REASONING.value_of(row)
            members = [float(truth == each) for each in _TRUTHS]
            return score, 1.0, *members, *(score * member for member in members), *judged

        return measure


# --- groups --------------------------------------------------------------------------------------


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


def _judged(marks: Sequence[Mark]) -> Parts:
    """Return how many of the rollouts of a cascade a judge decides; nothing without a cascade."""
    flags = [flag for _, judged in marks for flag in judged]
    return {"judged": sum(flags), "rows": float(len(flags))} if flags else {}


def _judge_share(sums: Parts) -> Values:
    return {"judge_share": ratio(sums["judged"], sums["rows"])} if "judged" in sums else {}


@dataclass(frozen=True, repr=False)
class _OfGroup(Verified, MetricBase):
    """A metric of the votes of the rollouts of a group, at least k."""

    k: int
    verifier: str = "exact"
    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"
    undecided: CascadeUndecided = "judge"

    unit = "group"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_k(self.k)

    def gauge(self, cache: AnswerCache) -> Callable[[ScoredRow], Mark]:
        """Return a function from a row to its vote and its judge."""
        truth_of, normalize = self.truth_gauge(cache), normalizer(self.normalizer)

        def mark(row: ScoredRow) -> Mark:
            truth, judged = truth_of(row)
            if truth == "uncertain":
                return ("", truth), judged
            text = (cache.answer(row, self.reads) or "").strip()
            if not text:
                return NO_ANSWER, judged
            return (normalize(text) or f"\0{text.casefold()}", truth), judged

        return mark

    def _check(self, marks: Sequence[Mark]) -> None:
        if len(marks) < self.k:
            raise GroupError(f"fewer than {self.k} rollouts")


@dataclass(frozen=True, repr=False)
@check_choices
class MajorityAtK(_OfGroup):
    """Accuracy, abstention and hallucination of the majority of a group's first k rollouts.

    The values are shares of the groups. Range 0 to 1. Normalized answers are compared, and all
    abstentions are equal. Groups with fewer than k rollouts are excluded and counted. With
    `verifier=cascade`, `judge_share` is the share of these rollouts that a judge decides. Source:
    TruthRL, section 2.3.
    """

    @property
    def name(self) -> str:
        return f"majority@{self.k}"

    def fold(self, marks: Sequence[Mark]) -> Parts:
        self._check(marks)
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
class PassAtK(_OfGroup):
    """Mean over groups of the probability that at least one of k responses is right. Range 0 to 1.

    The estimator is unbiased. Groups with fewer than k rollouts are excluded and counted. With
    `verifier=cascade`, `judge_share` is the share of the rollouts that a judge decides. Source:
    Chen et al. 2021, Eq. 1.
    """

    main_ratio = ("passed", "groups")

    @property
    def name(self) -> str:
        return f"pass@{self.k}"

    def fold(self, marks: Sequence[Mark]) -> Parts:
        self._check(marks)
        correct = sum(truth == "correct" for (_, truth), _ in marks)
        passed = pass_at_k(len(marks), correct, self.k)
        return {"passed": passed, "groups": 1.0, **_judged(marks)}

    def values(self, sums: Parts) -> Values:
        return {**super().values(sums), **_judge_share(sums)}
