"""Is the answer right: em, f1, substring, judge; and how much of it hangs on the documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rag_rewards.evidence.needs import Need, VerdictNeed, unmet
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.metrics.metric import Parts, Unit, Values, identity, ratio
from rag_rewards.metrics.reading import Common, Reads, read_answer
from rag_rewards.rewards.answer import AnswerMatch, judge_references, token_f1
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.text.normalize import Normalizer, NormalizerName

Compared = Literal["exact", "f1", "substring"]
Gauge = Callable[[ScoredRow], tuple[float, ...]]

_CLOSED = frozenset(("yes", "no", "noanswer"))


def hotpotqa_f1(prediction: str, aliases: Sequence[str], normalize: Normalizer) -> float:
    """Token F1, but 0 where one side is yes, no or noanswer and the other is not the same.

    Range 0 to 1; the best alias counts. Source: HotpotQA's official evaluation script.

    >>> from rag_rewards.text.normalize import squad
    >>> hotpotqa_f1("yes it is", ["yes"], squad), hotpotqa_f1("Paris", ["Paris, France"], squad)
    (0.0, 0.6666666666666666)
    """
    said = normalize(prediction)
    golds = [(normalize(alias), alias) for alias in aliases]
    kept = [a for gold, a in golds if said == gold or not _CLOSED.intersection((said, gold))]
    return token_f1(prediction, kept, normalize)


def match_gauge(
    common: Common, compared: Compared, normalizer: NormalizerName, reads: Reads
) -> Gauge:
    """(how right a row's answer is, 1): the best alias counts; no answer is 0."""
    match = AnswerMatch(metric=compared, normalizer=normalizer)
    forms = common.forms(normalizer)
    return lambda row: (match.value_of(row, common.answer(row, reads), forms), 1.0)


def asks_nothing(metric: Any, rollout: Rollout) -> list[Need]:
    """The needs of a metric that needs no model."""
    return []


def mean_right(metric: Any, sums: Parts) -> Values:
    """(1/N) Σ right."""
    return {metric.name: ratio(sums["right"], sums["rows"])}


@dataclass(frozen=True, repr=False)
class ExactMatch:
    """(1/N) Σ 1[the answer equals an alias]. Range 0 to 1. Source: SQuAD v1.1; ARENA, App. C.

    Of several required answers a comma-separated list must hold all. `normalizer=triviaqa` is
    ARENA's.
    """

    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"

    name = "em"
    unit: ClassVar[Unit] = "row"
    parts = ("right", "rows")
    needs = asks_nothing
    values = mean_right
    __repr__ = identity

    def gauge(self, common: Common) -> Gauge:
        return match_gauge(common, "exact", self.normalizer, self.reads)


@dataclass(frozen=True, repr=False)
class Substring:
    """(1/N) Σ 1[an alias stands in the answer]. Range 0 to 1. Source: Search-R1; CTRL-RAG, Eq. 3.

    Of several required answers all must stand there. `normalizer=lower,reads=response` is the
    accuracy of CTRL-RAG's leaderboard.
    """

    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"

    name = "substring"
    unit: ClassVar[Unit] = "row"
    parts = ("right", "rows")
    needs = asks_nothing
    values = mean_right
    __repr__ = identity

    def gauge(self, common: Common) -> Gauge:
        return match_gauge(common, "substring", self.normalizer, self.reads)


@dataclass(frozen=True, repr=False)
class F1:
    """(1/N) Σ token F1 with the best alias. Range 0 to 1. Source: SQuAD v1.1; ARENA, App. C.

    Several required answers: the mean of theirs. `hotpotqa` gives 0 where one side is yes, no or
    noanswer and the other differs, as HotpotQA's script does.
    """

    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"
    hotpotqa: bool = False

    name = "f1"
    unit: ClassVar[Unit] = "row"
    parts = ("right", "rows")
    needs = asks_nothing
    values = mean_right
    __repr__ = identity

    def gauge(self, common: Common) -> Gauge:
        if not self.hotpotqa:
            return match_gauge(common, "f1", self.normalizer, self.reads)
        normalize = common.forms(self.normalizer).normalize
        return lambda row: (_mean_hotpotqa(row, common.answer(row, self.reads), normalize), 1.0)


def _mean_hotpotqa(row: Rollout, text: str | None, normalize: Normalizer) -> float:
    required = row.gold
    return sum(hotpotqa_f1(text or "", aliases, normalize) for aliases in required) / len(required)


@dataclass(frozen=True, repr=False)
class Judge:
    """(1/N) Σ 1[a judge calls the answer right]. Range 0 to 1. Source: ARENA, App. C (its LJ).

    `component` names the verdict on the row: `outcome` takes what was judged for TruthRL. A
    response without an answer is wrong, and no judge is asked.
    """

    component: str = "accuracy"
    reads: Reads = "auto"

    name = "judge"
    unit: ClassVar[Unit] = "row"
    parts = ("right", "rows")
    values = mean_right
    __repr__ = identity

    def needs(self, rollout: Rollout) -> list[Need]:
        text = (read_answer(rollout, self.reads) or "").strip()
        if not text:
            return []
        asked = JudgeQuestion(
            "accuracy", rollout.question or "", text, judge_references(rollout.gold)
        )
        return [VerdictNeed(self.component, (asked,))]

    def gauge(self, common: Common) -> Gauge:
        return lambda row: (self._verdict(row, common.answer(row, self.reads)), 1.0)

    def _verdict(self, row: ScoredRow, answer: str | None) -> float:
        if not (answer or "").strip():
            return 0.0
        verdict = row.verdict(self.component)
        if verdict is None:
            raise unmet(VerdictNeed(self.component))
        return float(verdict)


@dataclass(frozen=True, repr=False)
class ReferenceReliance:
    """Acc(q, D) − Acc(q): rows with documents against rows without, joined on `id`.

    Range −1 to 1. The accuracy is that of CTRL-RAG's leaderboard unless set otherwise: an alias
    stands in the response without its thinking. Source: CTRL-RAG, section 5.2 (RR).
    """

    compared: Compared = "substring"
    normalizer: NormalizerName = "lower"
    reads: Reads = "response"

    name = "reference-reliance"
    unit: ClassVar[Unit] = "pair"
    parts = ("right", "rows")
    needs = asks_nothing
    __repr__ = identity

    def gauge(self, common: Common) -> Gauge:
        return match_gauge(common, self.compared, self.normalizer, self.reads)

    def values(self, sums: Parts) -> Values:
        """From `with`, `without` (right answers of each kind) and `pairs`."""
        pairs = sums["pairs"]
        return {
            self.name: ratio(sums["with"] - sums["without"], pairs),
            "with": ratio(sums["with"], pairs),
            "without": ratio(sums["without"], pairs),
        }
