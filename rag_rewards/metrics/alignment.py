"""The consistency of reasoning and answer: %Align."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import EntailmentNeed, Need, unmet
from rag_rewards.metrics.answer_text import AnswerCache, Reads, read_answer
from rag_rewards.metrics.metric import Gauge, MetricBase
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.citations import CITATION, compiled, strip_markers
from rag_rewards.text.sections import Tags

_MARKERS = compiled(CITATION)


@dataclass(frozen=True, repr=False)
@check_choices
class Align(MetricBase):
    """Share of rows whose reasoning entails the final answer. Range 0 to 1.

    `reasoning` is the name of the section with the reasoning (`think`; LEAR: `reason`). The answer
    is compared without its citations. A row without reasoning or answer does not align and is
    counted as `unread`. Source: Ground-GRPO, section 4.7, Eq. 8 (%Align).
    """

    reasoning: str = "think"
    threshold: float = 0.5
    reads: Reads = "auto"

    name = "align"
    parts = ("aligned", "unread", "rows")
    main_ratio = ("aligned", "rows")

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+", self.reasoning):
            raise UsageError(
                f"metric align: reasoning must be the name of a section, found {self.reasoning!r}"
            )

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        need = self._need(rollout)
        return [need] if need else []

    def gauge(self, cache: AnswerCache) -> Gauge:
        return self._measure

    def _need(self, rollout: Rollout) -> EntailmentNeed | None:
        tags = Tags((self.reasoning, "answer"))
        reasoning = rollout.parsed.cut(tags).content.get(self.reasoning, "").strip()
        answer = strip_markers(read_answer(rollout, self.reads) or "", _MARKERS)
        return EntailmentNeed(reasoning, answer) if reasoning and answer else None

    def _measure(self, row: ScoredRow) -> tuple[float, ...]:
        need = self._need(row)
        if need is None:
            return 0.0, 1.0, 1.0
        probability = row.entailment(need.premise, need.hypothesis)
        if probability is None:
            raise unmet(need)
        return float(probability >= self.threshold), 0.0, 1.0
