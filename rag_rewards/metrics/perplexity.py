"""Perplexity of the responses, with all documents and without the most important one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.answer_text import AnswerCache
from rag_rewards.metrics.metric import Gauge, MetricBase, Parts, Values
from rag_rewards.rewards.contrastive import ContrastiveLikelihood
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices

_LARGEST = 700.0  # e^700 is finite


@dataclass(frozen=True, repr=False)
@check_choices
class Perplexity(MetricBase):
    """exp(−ΣS/ΣT), the perplexity per token of the responses with all documents. At least 1.

    S is the log-probability of a response in nats, and T its number of tokens. `without` is the
    perplexity without the supporting document whose removal lowers S most. With `span=answer`, the
    tokens of the thinking section are excluded. A row needs `supporting`, and
    `logprobs` or a policy. Source: CTRL-RAG, section 5.2 and Figure 4, which write exp(−S).
    """

    span: Literal["response", "answer"] = "response"

    name = "perplexity"
    parts = ("logprob", "logprob_without", "tokens", "rows")

    @property
    def _likelihood(self) -> ContrastiveLikelihood:
        return ContrastiveLikelihood(span=self.span)

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        return self._likelihood.needs(rollout)

    def gauge(self, cache: AnswerCache) -> Gauge:
        likelihood = self._likelihood

        def measure(row: ScoredRow) -> tuple[float, ...]:
            details = likelihood([row])[0].details
            tokens = float(details["tokens"])
            return details["logprob"], details["logprob_without"], tokens, 1.0

        return measure

    def values(self, sums: Parts) -> Values:
        return {
            self.name: _perplexity(sums["logprob"], sums["tokens"]),
            "without": _perplexity(sums["logprob_without"], sums["tokens"]),
        }


def _perplexity(logprob: float, tokens: float) -> float | None:
    return math.exp(min(-logprob / tokens, _LARGEST)) if tokens else None
