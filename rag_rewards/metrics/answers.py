"""Metrics of right answers, by rules or by a judge, and their reliance on documents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.metric import (
    AnswerCache,
    Gauge,
    MetricBase,
    Parts,
    Reads,
    Values,
    ratio,
    read_answer,
)
from rag_rewards.rewards.correctness import CascadeUndecided, Correctness, token_f1
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.normalize import Normalizer, NormalizerName, normalizer

Compared = Literal["exact", "f1", "substring", "lenient"]

_CLOSED = frozenset(("yes", "no", "noanswer"))


def hotpotqa_f1(prediction: str, aliases: Sequence[str], normalize: Normalizer) -> float:
    """Return the token F1, but 0 if one text is yes, no or noanswer and the other differs.

    Range 0 to 1; the best alias counts. Source: HotpotQA's official evaluation script.

    >>> from rag_rewards.text.normalize import squad
    >>> hotpotqa_f1("yes it is", ["yes"], squad), hotpotqa_f1("Paris", ["Paris, France"], squad)
    (0.0, 0.6666666666666666)
    """
    answer = normalize(prediction)
    golds = [(normalize(alias), alias) for alias in aliases]
    comparable = [
        alias for gold, alias in golds if answer == gold or not _CLOSED.intersection((answer, gold))
    ]
    return token_f1(prediction, comparable, normalize)


class _MatchMetric(MetricBase):
    """A metric that compares the answer with the gold answers."""

    compared: Compared
    normalizer: NormalizerName
    reads: Reads

    def gauge(self, cache: AnswerCache) -> Gauge:
        """Return (match of the row's answer, 1). The best alias counts. No answer is 0."""
        correctness = Correctness(self.compared, normalize=normalizer(self.normalizer))
        return lambda row: (correctness.value_of(row, cache.answer(row, self.reads)), 1.0)


@dataclass(frozen=True, repr=False)
@check_choices
class ExactMatch(_MatchMetric):
    """(1/N) Σ 1[the answer equals an alias]. Range 0 to 1. Source: SQuAD v1.1; ARENA, App. C.

    If several answers are required, a comma-separated list must contain all of them.
    `normalizer=triviaqa` is that of ARENA.
    """

    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"

    name = "em"
    compared = "exact"


@dataclass(frozen=True, repr=False)
@check_choices
class Substring(_MatchMetric):
    """(1/N) Σ 1[the answer contains an alias]. Range 0 to 1. Source: Search-R1; CTRL-RAG, Eq. 3.

    If several answers are required, the answer must contain all of them.
    `normalizer=lower,reads=response` is the accuracy of CTRL-RAG's leaderboard.
    """

    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"

    name = "substring"
    compared = "substring"


@dataclass(frozen=True, repr=False)
@check_choices
class Lenient(_MatchMetric):
    """(1/N) Σ 1[the answer contains an alias, perhaps in another form]. Range 0 to 1.

    It reads partial names, dates of different granularity and other free forms, see
    `matching.lenient`. If several answers are required, the answer must contain all of them.
    """

    reads: Reads = "auto"

    name = "lenient"
    compared = "lenient"
    normalizer = "squad"


@dataclass(frozen=True, repr=False)
@check_choices
class F1(_MatchMetric):
    """(1/N) Σ token F1 with the best alias. Range 0 to 1. Source: SQuAD v1.1; ARENA, App. C.

    If several answers are required, their mean counts. With `hotpotqa`, the value is 0 if one
    text is yes, no or noanswer and the other differs, as in HotpotQA's script.
    """

    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"
    hotpotqa: bool = False

    name = "f1"
    compared = "f1"

    def gauge(self, cache: AnswerCache) -> Gauge:
        if not self.hotpotqa:
            return super().gauge(cache)
        normalize = normalizer(self.normalizer)
        return lambda row: (_mean_hotpotqa(row, cache.answer(row, self.reads), normalize), 1.0)


def _mean_hotpotqa(row: Rollout, text: str | None, normalize: Normalizer) -> float:
    required = row.gold
    return math.fsum(hotpotqa_f1(text or "", aliases, normalize) for aliases in required) / len(
        required
    )


@dataclass(frozen=True, repr=False)
@check_choices
class JudgeAccuracy(MetricBase):
    """(1/N) Σ 1[a judge accepts the answer]. Range 0 to 1. Source: ARENA, App. C (LJ).

    `component` is the name of the verdict in the row. For `outcome`, the judge gets the question
    of TruthRL, otherwise that of ARENA. A response without an answer is wrong and is not sent to
    the judge. Raises UsageError for `reasoning`, which is a verdict on another text.
    """

    component: str = "accuracy"
    reads: Reads = "auto"

    name = "judge"

    def __post_init__(self) -> None:
        if self.component == "reasoning":
            raise UsageError(
                "metric judge: component=reasoning is a verdict on the reasoning, but this metric "
                "rates the answer: use the metric reasoning-score"
            )

    @property
    def _correctness(self) -> Correctness:
        asks: Literal["accuracy", "outcome"] = (
            "outcome" if self.component == "outcome" else "accuracy"
        )
        return Correctness("judge", component=self.component, asks=asks)

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        return self._correctness.needs(rollout, read_answer(rollout, self.reads))

    def gauge(self, cache: AnswerCache) -> Gauge:
        correctness = self._correctness
        return lambda row: (correctness.verdict(row, cache.answer(row, self.reads)), 1.0)


@dataclass(frozen=True, repr=False)
@check_choices
class CascadeAccuracy(MetricBase):
    """(1/N) Σ 1[the answer is right], where a judge decides on answers that rules leave undecided.

    Range 0 to 1. The rules are those of `matching.decide`. `judge_share` is the share of the
    answers that the judge decides on; with undecided="doubtful", these are also right ones that
    equal no gold answer. The judge gets the question of ARENA. If several answers are required, the
    answer must contain all of them.
    """

    undecided: CascadeUndecided = "judge"
    reads: Reads = "auto"

    name = "cascade"
    parts = ("right", "judged", "rows")
    further_ratios = MappingProxyType({"judge_share": ("judged", "rows")})

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        correctness = Correctness("cascade", self.undecided)
        return correctness.needs(rollout, read_answer(rollout, self.reads))

    def gauge(self, cache: AnswerCache) -> Gauge:
        correctness = Correctness("cascade", self.undecided)

        def measure(row: ScoredRow) -> tuple[float, ...]:
            decision = correctness.decide(row, cache.answer(row, self.reads))
            is_right = decision.is_right(row, correctness.component)
            return float(is_right), float(decision.is_judged), 1.0

        return measure


@dataclass(frozen=True, repr=False)
@check_choices
class ReferenceReliance(_MatchMetric):
    """Acc(q, D) − Acc(q): rows with documents minus rows without, joined on `id`.

    Range −1 to 1. By default, the accuracy is that of CTRL-RAG's leaderboard: the response without
    its thinking section contains an alias. Source: CTRL-RAG, section 5.2 (RR).
    """

    compared: Compared = "substring"
    normalizer: NormalizerName = "lower"
    reads: Reads = "response"

    name = "reference-reliance"
    unit = "pair"

    def values(self, sums: Parts) -> Values:
        """Return the values from the right answers `with` and `without` documents, and `pairs`."""
        pairs = sums["pairs"]
        return {
            self.name: ratio(sums["with"] - sums["without"], pairs),
            "with": ratio(sums["with"], pairs),
            "without": ratio(sums["without"], pairs),
        }
