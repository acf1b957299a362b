"""Contrastive likelihood: how much likelier a response is with the supporting documents."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rag_rewards.errors import DataError, EvidenceError
from rag_rewards.evidence.needs import LogProbsNeed, Need, unmet, values_without
from rag_rewards.rollout import LogProbs, Rollout, Score

Loo = Literal["min", "mean"]
LengthNorm = Literal["sqrt", "none", "linear"]

ROUNDING = 1e-4
"""Positive log-probabilities up to this many nats are rounding and are read as 0."""


def evidential_contribution(full: float, without: Sequence[float], loo: Loo = "min") -> float:
    """E(y) = S(y|D) − min_d S(y|D∖{d}), or minus the mean. In nats, any sign.

    `full` and `without` are sums of token log-probabilities in nats, one in `without` per
    supporting document. Source: CTRL-RAG, Eq. 9 to 11 and 16.

    >>> evidential_contribution(-10.0, [-14.0, -11.0])
    4.0
    """
    return full - (min(without) if loo == "min" else sum(without) / len(without))


def contrastive_likelihood(
    contribution: float,
    tokens: int,
    threshold: float | None = 1.0,
    length_norm: LengthNorm = "sqrt",
) -> float:
    """R_CLR = E·1[E > τ] / √T; without a threshold E/√T, possibly negative.

    The threshold is on E, in nats, before dividing. 0 for a response of no tokens. Source:
    CTRL-RAG, Eq. 13; section 5.3 for other length norms.

    >>> contrastive_likelihood(8.0, 16), contrastive_likelihood(0.9, 16)
    (2.0, 0.0)
    """
    if not tokens or (threshold is not None and not contribution > threshold):
        return 0.0
    return contribution / {"sqrt": math.sqrt(tokens), "none": 1.0, "linear": tokens}[length_norm]


def token_contributions(
    full: Sequence[float], without: Sequence[Sequence[float]], loo: Loo = "min"
) -> list[float]:
    """ε(y_t) in nats, so that Σ ε = E: under d*, or averaged over D+. Source: CTRL-RAG, Eq. 12."""
    if loo == "min":
        least = min(without, key=sum)
        return [f - w for f, w in zip(full, least, strict=True)]
    n = len(without)
    return [f - sum(ws) / n for f, *ws in zip(full, *without, strict=True)]


def checked_logprobs(values: Sequence[float], path: str) -> Sequence[float]:
    """Log-probabilities that can be: finite, at most 0 (rounding is clipped). EvidenceError."""
    if not values:
        return values
    if not math.isfinite(sum(values)):
        at = next((i for i, v in enumerate(values) if not math.isfinite(v)), 0)
        raise EvidenceError(f"not a finite number: {values[at]}", f"{path}[{at}]")
    if max(values) <= 0.0:
        return values
    at = max(range(len(values)), key=values.__getitem__)
    if values[at] > ROUNDING:
        raise EvidenceError(f"a log-probability is at most 0, found {values[at]}", f"{path}[{at}]")
    return [min(value, 0.0) for value in values]


@dataclass(frozen=True)
class ContrastiveLikelihood:
    """R_CLR from the rollout's log-probabilities; `components` holds E(y), in nats, as well.

    `span="answer"` leaves the thinking out. No supporting document is a DataError, or 0 with
    `on_missing_support="zero"`. Details: d*, S and S⁻, the tokens T, per-token perplexities of
    both contexts and the share of tokens that the documents made likelier (`tokens=True` adds
    ε per token). Source: CTRL-RAG, sections 4.1 and 4.2.
    """

    loo: Loo = "min"
    threshold: float | None = 1.0
    length_norm: LengthNorm = "sqrt"
    span: Literal["response", "answer"] = "response"
    on_missing_support: Literal["error", "zero"] = "error"
    tokens: bool = False
    name: str = "clr"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        supporting = self._supporting(rollout)
        return [LogProbsNeed(supporting)] if supporting else []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [self._score(rollout) for rollout in rollouts]

    def _supporting(self, rollout: Rollout) -> tuple[str, ...]:
        labels = () if rollout.supporting is None else rollout.supporting_labels
        if not labels and self.on_missing_support == "error":
            what = "missing" if rollout.supporting is None else "no supporting document"
            raise DataError(f"{what}; set on_missing_support=zero for mixed sets", "supporting")
        return labels

    def _score(self, rollout: Rollout) -> Score:
        supporting = self._supporting(rollout)
        if not supporting:
            return _clr_score(0.0, 0.0, {"tokens": 0})
        if rollout.logprobs is None:
            raise unmet(LogProbsNeed(supporting))
        full, without = self._read(rollout, rollout.logprobs, supporting)
        sums = [sum(values) for values in without]
        s, t = sum(full), len(full)
        contribution = evidential_contribution(s, sums, self.loo)
        least = min(range(len(sums)), key=sums.__getitem__)
        s_minus = s - contribution
        details: dict[str, Any] = {
            "tokens": t,
            "critical_document": supporting[least],
            "logprob": s,
            "logprob_without": s_minus,
        }
        if t:
            details["perplexity"] = _perplexity(s, t)
            details["perplexity_without"] = _perplexity(s_minus, t)
            details["share_grounded"] = self._share_grounded(full, without, least)
        if self.tokens:
            details["contributions"] = token_contributions(full, without, self.loo)
        clr = contrastive_likelihood(contribution, t, self.threshold, self.length_norm)
        return _clr_score(contribution, clr, details)

    def _share_grounded(
        self, full: Sequence[float], without: Sequence[Sequence[float]], least: int
    ) -> float:
        if self.loo == "min":
            likelier: int = sum(map(operator.gt, full, without[least]))
            return likelier / len(full)
        return sum(e > 0 for e in token_contributions(full, without, self.loo)) / len(full)

    def _read(
        self, rollout: Rollout, known: LogProbs, supporting: Sequence[str]
    ) -> tuple[Sequence[float], list[Sequence[float]]]:
        full = checked_logprobs(known.full, "logprobs.full")
        if not full and rollout.parsed.text.strip():
            raise EvidenceError("no value for a response that has text", "logprobs.full")
        ids = rollout.response_token_ids
        if ids is not None and len(ids) != len(full):
            raise EvidenceError(
                f"one value per response token: expected {len(ids)}, found {len(full)}",
                "logprobs.full",
            )
        without = []
        for label in supporting:
            values = values_without(rollout, label)
            path = f"logprobs.without.{label}"
            if values is None:
                raise DataError("missing; log-probabilities without this document", path)
            if len(values) != len(full):
                raise EvidenceError(
                    f"as many values as logprobs.full: expected {len(full)}, found {len(values)}",
                    path,
                )
            without.append(checked_logprobs(values, path))
        if self.span == "answer":
            start, end = self._answer_span(rollout, known)
            return full[start:end], [values[start:end] for values in without]
        return full, without

    def _answer_span(self, rollout: Rollout, known: LogProbs) -> tuple[int, int]:
        n = len(known.full)
        if known.answer_span is None:
            if "<think>" in rollout.parsed.text:
                if "</think>" not in rollout.parsed.text:
                    return n, n  # the thinking never ends: there is no answer
                raise DataError(
                    "missing; span=answer needs the token range after the thinking",
                    "logprobs.answer_span",
                )
            return 0, n
        start, end = known.answer_span
        if not 0 <= start <= end <= n:
            raise EvidenceError(
                f"0 ≤ start ≤ end ≤ {n} expected, found [{start}, {end}]", "logprobs.answer_span"
            )
        return start, end


def _clr_score(contribution: float, clr: float, details: dict[str, Any]) -> Score:
    return Score(
        clr, components={"evidential_contribution": contribution, "clr": clr}, details=details
    )


def _perplexity(logprob: float, tokens: int) -> float:
    """exp(−S/T), per token (the paper writes exp(−S)); a very unlikely response is cut at e^700."""
    return math.exp(min(-logprob / tokens, 700.0))
