"""The quality of the reasoning, as a judge rates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.answer_text import AnswerCache, Reads, read_answer
from rag_rewards.metrics.metric import Gauge, MetricBase
from rag_rewards.metrics.truth import outcome_of
from rag_rewards.rewards.answer_decision import Ask
from rag_rewards.rewards.truthfulness import Reasoning, Truth
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.normalize import NormalizerName

_TRUTHS: tuple[Truth, ...] = get_args(Truth)
_REASONING = Reasoning()


@dataclass(frozen=True, repr=False)
@check_choices
class ReasoningScore(MetricBase):
    """(1/N) Σ r_r: the share of responses whose reasoning a judge accepts. Range 0 to 1.

    The verdict `reasoning` is that of the component `reasoning` of the recipe `truthrl`. Further
    values are the same share of the responses whose answer is `correct`, `uncertain` or
    `incorrect`; `verifier`, `normalizer`, `reads` and `ask` decide this as in
    `truthfulness`, and with `verifier=cascade`, `judge_share` has the same meaning as there.
    A blank response gets 0 without a verdict. Source: TruthRL, section 4.6, Tables 8 and 12.
    """

    verifier: str = "judge"
    normalizer: NormalizerName = "squad"
    reads: Reads = "box"
    ask: Ask = "undecided"

    name = "reasoning-score"
    main_ratio = ("accepted", "rows")

    def __post_init__(self) -> None:
        outcome_of(self.verifier, self.normalizer, self.ask)

    @property
    def _is_cascade(self) -> bool:
        return self.verifier == "cascade"

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        accepted = (f"accepted:{truth}" for truth in _TRUTHS)
        return ("accepted", "rows", *_TRUTHS, *accepted, *(["judged"] if self._is_cascade else []))

    @property
    def further_ratios(self) -> Mapping[str, tuple[str, str]]:  # type: ignore[override]
        ratios = {str(truth): (f"accepted:{truth}", str(truth)) for truth in _TRUTHS}
        return ratios | ({"judge_share": ("judged", "rows")} if self._is_cascade else {})

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        outcome = outcome_of(self.verifier, self.normalizer, self.ask)
        answer = read_answer(rollout, self.reads)
        return [*_REASONING.needs(rollout), *outcome.needs_of(rollout, answer)]

    def gauge(self, cache: AnswerCache) -> Gauge:
        outcome, forms = (
            outcome_of(self.verifier, self.normalizer, self.ask),
            cache.forms(self.normalizer),
        )

        def measure(row: ScoredRow) -> tuple[float, ...]:
            truth, decision = outcome.verify(row, cache.answer(row, self.reads), forms)
            score = _REASONING.value_of(row)
            members = [float(truth == each) for each in _TRUTHS]
            judged = () if decision is None else (float(decision.is_judged),)
            return score, 1.0, *members, *(score * member for member in members), *judged

        return measure
