"""Metrics of claims: whether documents support them, and how good their citations are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from rag_rewards.errors import SettingError, UsageError
from rag_rewards.evidence.needs import Need
from rag_rewards.metrics.metric import AnswerCache, Gauge, MetricBase
from rag_rewards.rewards.claims import CheckedBy, Claims, ClaimsBy, ClaimsIn, Premises
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices


class _ClaimMetric(MetricBase):
    """A metric of the reward `Claims`. Rows without a claim are counted as `empty` and left out."""

    def __post_init__(self) -> None:
        try:
            _ = self.reward
        except SettingError as error:
            problem = str(error).removeprefix("Claims: ")
            raise UsageError(f"metric {self.name}: {problem}") from None

    @property
    def reward(self) -> Claims:
        raise NotImplementedError

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        return self.reward.needs(rollout)

    def gauge(self, cache: AnswerCache) -> Gauge:
        reward = self.reward
        empty = (*(0.0 for _ in self.parts[:-1]), 1.0)

        def measure(row: ScoredRow) -> tuple[float, ...]:
            score = reward.score(row)
            claims = score.details["claims"]
            return (*self.numbers(score, claims), 1.0, 0.0) if claims else empty

        return measure

    def numbers(self, score: Score, claims: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
        """Return the parts of a row before `rows` and `empty`."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
@check_choices
class Faithfulness(_ClaimMetric):
    """Mean share of the claims of a response that the documents support. Range 0 to 1.

    `by_claim` is the share of all claims of all rows. The claims and the settings are those of the
    reward `Claims`; `premises=each` requires one document that supports a claim alone. Rows without
    a claim are counted as `empty` and left out. Source: RAGAS (arXiv 2309.15217), section 3.
    """

    claims_in: ClaimsIn = "answer"
    claims_by: ClaimsBy = "statements"
    checked_by: CheckedBy = "nli"
    threshold: float = 0.5
    premises: Premises = "together"
    repeated: bool = False

    name = "faithfulness"
    parts = ("share", "supported", "claims", "rows", "empty")
    main_ratio = ("share", "rows")
    further_ratios = MappingProxyType({"by_claim": ("supported", "claims")})

    @cached_property
    def reward(self) -> Claims:
        return Claims(
            "faithfulness",
            claims_in=self.claims_in,
            claims_by=self.claims_by,
            checked_by=self.checked_by,
            threshold=self.threshold,
            premises=self.premises,
            repeated=self.repeated,
        )

    def numbers(self, score: Score, claims: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
        supported = sum(claim["supported"] for claim in claims)
        return score.value or 0.0, float(supported), float(len(claims))


@dataclass(frozen=True, repr=False)
@check_choices
class Attribution(_ClaimMetric):
    """Mean F1, precision and recall of the citations of claims, checked by a model. Range 0 to 1.

    A claim is attributed if the documents that it cites support it together. A citation is precise
    if it alone supports the claim, or the others without it do not. Without citations, all values
    are 0. The claims and the settings are those of the reward `Claims`. Rows without a claim are
    counted as `empty` and left out. Source: ALCE (arXiv 2305.14627), section 3, per response.
    """

    claims_in: ClaimsIn = "answer"
    checked_by: CheckedBy = "nli"
    threshold: float = 0.5
    max_citations: int = 3
    repeated: bool = False

    name = "attribution"
    parts = ("f1", "precision", "recall", "rows", "empty")
    main_ratio = ("f1", "rows")
    further_ratios = MappingProxyType(
        {"precision": ("precision", "rows"), "recall": ("recall", "rows")}
    )

    @cached_property
    def reward(self) -> Claims:
        return Claims(
            "f1",
            claims_in=self.claims_in,
            checked_by=self.checked_by,
            threshold=self.threshold,
            max_citations=self.max_citations,
            repeated=self.repeated,
        )

    def numbers(self, score: Score, claims: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
        return tuple(score.components[name] or 0.0 for name in self.parts[:3])
