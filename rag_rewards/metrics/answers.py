"""Metrics of right answers: em, f1, substring, lenient, judge; their reliance on documents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import Need, VerdictNeed, unmet
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.metrics.answer_text import AnswerCache, Reads, read_answer
from rag_rewards.metrics.metric import Gauge, MetricBase, Parts, Values, ratio
from rag_rewards.rewards.answer import AnswerMatch, judge_references, token_f1
from rag_rewards.rewards.truthfulness import outcome_questions
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.normalize import Normalizer, NormalizerName

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


class _MatchMetric(Protocol):
    """A metric that compares the answer with the gold answers."""

    @property
    def compared(self) -> Compared: ...
    @property
    def normalizer(self) -> NormalizerName: ...
    @property
    def reads(self) -> Reads: ...


def _match_gauge(metric: _MatchMetric, cache: AnswerCache) -> Gauge:
    """Return (match of the row's answer, 1). The best alias counts. No answer is 0."""
    match = AnswerMatch(metric=metric.compared, normalizer=metric.normalizer)
    forms, reads = cache.forms(metric.normalizer), metric.reads
    return lambda row: (match.value_of(row, cache.answer(row, reads), forms), 1.0)


@dataclass(frozen=True, repr=False)
@check_choices
class ExactMatch(MetricBase):
    """(1/N) Σ 1[the answer equals an alias]. Range 0 to 1. Source: SQuAD v1.1; ARENA, App. C.

    If several answers are required, a comma-separated list must contain all of them.
    `normalizer=triviaqa` is that of ARENA.
    """

    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"

    name = "em"
    compared: ClassVar[Compared] = "exact"
    gauge = _match_gauge


@dataclass(frozen=True, repr=False)
@check_choices
class Substring(MetricBase):
    """(1/N) Σ 1[the answer contains an alias]. Range 0 to 1. Source: Search-R1; CTRL-RAG, Eq. 3.

    If several answers are required, the answer must contain all of them.
    `normalizer=lower,reads=response` is the accuracy of CTRL-RAG's leaderboard.
    """

    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"

    name = "substring"
    compared: ClassVar[Compared] = "substring"
    gauge = _match_gauge


@dataclass(frozen=True, repr=False)
@check_choices
class Lenient(MetricBase):
    """(1/N) Σ 1[the answer contains an alias, perhaps in another form]. Range 0 to 1.

    It reads partial names, dates of different granularity and other free forms, see
    `matching.lenient`. If several answers are required, the answer must contain all of them.
    """

    reads: Reads = "auto"

    name = "lenient"
    compared: ClassVar[Compared] = "lenient"
    normalizer: ClassVar[NormalizerName] = "squad"
    gauge = _match_gauge


@dataclass(frozen=True, repr=False)
@check_choices
class F1(MetricBase):
    """(1/N) Σ token F1 with the best alias. Range 0 to 1. Source: SQuAD v1.1; ARENA, App. C.

    If several answers are required, their mean counts. With `hotpotqa`, the value is 0 if one
    text is yes, no or noanswer and the other differs, as in HotpotQA's script.
    """

    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"
    hotpotqa: bool = False

    name = "f1"
    compared: ClassVar[Compared] = "f1"

    def gauge(self, cache: AnswerCache) -> Gauge:
        if not self.hotpotqa:
            return _match_gauge(self, cache)
        normalize = cache.forms(self.normalizer).normalize
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

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        text = (read_answer(rollout, self.reads) or "").strip()
        if not text:
            return ()
        if self.component == "outcome":
            return [VerdictNeed(self.component, outcome_questions(rollout, text))]
        gold = judge_references(rollout.gold)
        question = JudgeQuestion("accuracy", rollout.question or "", text, gold)
        return [VerdictNeed(self.component, (question,))]

    def gauge(self, cache: AnswerCache) -> Gauge:
        return lambda row: (self._verdict(row, cache.answer(row, self.reads)), 1.0)

    def _verdict(self, row: ScoredRow, answer: str | None) -> float:
        if not (answer or "").strip():
            return 0.0
        verdict = row.verdict(self.component)
        if verdict is None:
            raise unmet(VerdictNeed(self.component))
        return float(verdict)


@dataclass(frozen=True, repr=False)
@check_choices
class ReferenceReliance(MetricBase):
    """Acc(q, D) − Acc(q): rows with documents minus rows without, joined on `id`.

    Range −1 to 1. By default, the accuracy is that of CTRL-RAG's leaderboard: the response without
    its thinking section contains an alias. Source: CTRL-RAG, section 5.2 (RR).
    """

    compared: Compared = "substring"
    normalizer: NormalizerName = "lower"
    reads: Reads = "response"

    name = "reference-reliance"
    unit = "pair"
    gauge = _match_gauge

    def values(self, sums: Parts) -> Values:
        """Return the values from the right answers `with` and `without` documents, and `pairs`."""
        pairs = sums["pairs"]
        return {
            self.name: ratio(sums["with"] - sums["without"], pairs),
            "with": ratio(sums["with"], pairs),
            "without": ratio(sums["without"], pairs),
        }
