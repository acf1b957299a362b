"""Contrastive likelihood: how much more likely a response is with its supporting documents."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from rag_rewards.errors import DataError, EvidenceError, check_choice
from rag_rewards.evidence.needs import LogProbsNeed, Need, values_without
from rag_rewards.reward import RolloutReward
from rag_rewards.rollout import LogProbs, Rollout, Score
from rag_rewards.settings import about, check_choices

Loo = Literal["min", "mean"]
LengthNorm = Literal["sqrt", "none", "linear"]
ThresholdOn = Literal["contribution", "reward"]

LEAST = -1e6
"""Log-probabilities below this are placeholders, such as that of a masked token."""
ROUNDING = 1e-4
"""Positive log-probabilities up to this value, in nats, are rounding errors and are read as 0."""


def evidential_contribution(full: float, without: Sequence[float], loo: Loo = "min") -> float:
    """Return the evidential contribution E(y) = S(y|D) − min_d S(y|D∖{d}), in nats.

    `full` is S(y|D), the sum of token log-probabilities in nats. `without` contains the same sum
    without each supporting document d. `loo="mean"` subtracts the mean instead of the minimum. E
    can have any sign. Source: CTRL-RAG, Eq. 9 to 11 and 16.

    >>> evidential_contribution(-10.0, [-14.0, -11.0])
    4.0
    """
    check_choice("loo", loo, Loo)
    return full - (min(without) if loo == "min" else math.fsum(without) / len(without))


def contrastive_likelihood(
    contribution: float,
    tokens: int,
    threshold: float | None = 1.0,
    length_norm: LengthNorm = "sqrt",
    threshold_on: ThresholdOn = "contribution",
) -> float:
    """Return R_CLR = E·1[E > τ] / √T for a response of T tokens.

    The threshold τ applies to E, in nats, before the division. With `threshold_on="reward"`, it
    applies to R = E / √T: R_CLR is 0 if R < τ, and otherwise R. None means no threshold, so that
    the result can be negative. The result is 0 for a response without tokens. Source: CTRL-RAG,
    Eq. 13; section 5.3 for other length norms; Appendix A for a threshold on R.

    >>> contrastive_likelihood(8.0, 16), contrastive_likelihood(0.9, 16)
    (2.0, 0.0)
    >>> contrastive_likelihood(3.0, 16), contrastive_likelihood(3.0, 16, threshold_on="reward")
    (0.75, 0.0)
    """
    check_choice("length_norm", length_norm, LengthNorm)
    check_choice("threshold_on", threshold_on, ThresholdOn)
    if not tokens:
        return 0.0
    reward = contribution
    if length_norm != "none":
        reward /= math.sqrt(tokens) if length_norm == "sqrt" else tokens
    if threshold is None:
        return reward
    is_above = contribution > threshold if threshold_on == "contribution" else reward >= threshold
    return reward if is_above else 0.0


def token_contributions(
    full: Sequence[float], without: Sequence[Sequence[float]], loo: Loo = "min"
) -> list[float]:
    """Return the contribution ε(y_t) of each token, in nats, with Σ ε = E.

    `full` contains T log-probabilities, and `without` contains T for each supporting document. The
    contribution is computed without the most important document d*, or with `loo="mean"` as the
    mean over the documents. Source: CTRL-RAG, Eq. 12.
    """
    check_choice("loo", loo, Loo)
    if loo == "min":
        least = min(without, key=math.fsum)
        return [f - w for f, w in zip(full, least, strict=True)]
    n = len(without)
    return [f - math.fsum(ws) / n for f, *ws in zip(full, *without, strict=True)]


def checked_logprobs(values: Sequence[float], path: str) -> Sequence[float]:
    """Return log-probabilities with positive rounding errors set to 0.

    Raises EvidenceError for values that are not finite, greater than the rounding error, or less
    than `LEAST`.
    """
    if not values:
        return values
    total = sum(values)  # the rounding of the sum does not matter here
    if total >= LEAST and max(values) <= 0.0:  # no value is less than the sum
        return values
    if not math.isfinite(total):
        at = next((i for i, v in enumerate(values) if not math.isfinite(v)), 0)
        raise EvidenceError(f"not a finite number: {values[at]}", f"{path}[{at}]")
    if (least := min(values)) < LEAST:
        message = f"a log-probability is at least {LEAST:,.0f}, found {least}"
        raise EvidenceError(message, f"{path}[{values.index(least)}]")
    at = max(range(len(values)), key=values.__getitem__)
    if values[at] > ROUNDING:
        raise EvidenceError(f"a log-probability is at most 0, found {values[at]}", f"{path}[{at}]")
    return [min(value, 0.0) for value in values]


_ROUNDING_OF_SUMS = 1e-8
"""Relative error of a plain sum of fewer than 10 million log-probabilities, and more."""


def least_sum(lists: Sequence[Sequence[float]], sums: Sequence[float]) -> tuple[int, float]:
    """Return the position and the exact sum of the first list with the least sum.

    The lists contain log-probabilities, which are at most 0. Exact summation takes several times
    as long as plain summation, whose results `sums` are enough to exclude most lists.

    >>> least_sum([[-1.0, -2.0], [-4.0], [-0.5]], [-3.0, -4.0, -0.5])
    (1, -4.0)
    """
    least = min(sums)
    near = least - _ROUNDING_OF_SUMS * least
    at, exact = -1, math.inf
    for i, total in enumerate(sums):
        if total <= near and (candidate := math.fsum(lists[i])) < exact:
            at, exact = i, candidate
    return at, exact


@dataclass(frozen=True)
@check_choices
class ContrastiveLikelihood(RolloutReward):
    """R_CLR of the log-probabilities of a rollout. The components are E(y), in nats, and R_CLR.

    The response of a rollout with several turns is its last turn, y, and D are the results of all
    searches: S(y|D∖{d}) is the log-probability of y after the same turns, with d removed from each
    result. The words of the policy in earlier turns do not change. (The paper has one turn.)

    The details contain the most important document d*, S with and without it, the number of
    tokens T, the perplexity per token in both contexts, and the share of tokens that the
    documents make more likely. Raises EvidenceError for impossible log-probabilities. Source:
    CTRL-RAG, sections 4.1 and 4.2.
    """

    loo: Annotated[
        Loo,
        about(
            "minimum or mean (Eq. 16) of the log-probabilities without one supporting document",
            "CTRL-RAG, Eq. 10, Table 2",
        ),
    ] = "min"
    threshold: Annotated[
        float | None,
        about(
            "τ in nats: a response below the threshold gets 0; null for no threshold",
            "CTRL-RAG, Eq. 13; Appendix A: 1",
        ),
    ] = 1.0
    length_norm: Annotated[
        LengthNorm, about("divide E by √T, 1 or T", "CTRL-RAG, Eq. 13, Figure 5")
    ] = "sqrt"
    span: Annotated[
        Literal["response", "answer"],
        about(
            "text whose log-probability is used; answer: without the thinking section",
            "CTRL-RAG, Eq. 9: the response",
        ),
    ] = "response"
    on_missing_support: Annotated[
        Literal["error", "zero"],
        about(
            "rows without supporting documents are errors or get the reward 0",
            "ours: a missing field is a fault of the data",
        ),
    ] = "error"
    tokens: Annotated[
        bool,
        about(
            "add the evidential contribution of each token to the details",
            "ours: off, because the details become long",
        ),
    ] = False
    threshold_on: Annotated[
        ThresholdOn,
        about(
            "contribution: R is 0 unless E > τ, before the division; reward: R is 0 if E/√T < τ",
            "CTRL-RAG, Eq. 13: E; the text of Appendix A: R",
        ),
    ] = "contribution"
    name: str = "clr"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        supporting = self._supporting(rollout)
        return [LogProbsNeed(supporting)] if supporting else []

    def _supporting(self, rollout: Rollout) -> tuple[str, ...]:
        labels = () if rollout.supporting is None else rollout.supporting_labels
        if not labels and self.on_missing_support == "error":
            what = "missing" if rollout.supporting is None else "no supporting document"
            raise DataError(
                f"{what}: add it, or set on_missing_support=zero to give such rows 0", "supporting"
            )
        return labels

    def score(self, rollout: Rollout) -> Score:
        supporting = self._supporting(rollout)
        if not supporting:
            return _clr_score(0.0, 0.0, {"tokens": 0})
        if rollout.logprobs is None:
            raise LogProbsNeed(supporting).unmet()
        full, without, plain_sums = self._read(rollout, rollout.logprobs, supporting)
        s, t = math.fsum(full), len(full)
        least, s_least = least_sum(without, plain_sums)
        sums = [s_least] if self.loo == "min" else [math.fsum(values) for values in without]
        contribution = evidential_contribution(s, sums, self.loo)
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
        clr = contrastive_likelihood(
            contribution, t, self.threshold, self.length_norm, self.threshold_on
        )
        return _clr_score(contribution, clr, details)

    def _share_grounded(
        self, full: Sequence[float], without: Sequence[Sequence[float]], least: int
    ) -> float:
        if self.loo == "min":
            grounded: int = sum(map(operator.gt, full, without[least]))
            return grounded / len(full)
        return sum(e > 0 for e in token_contributions(full, without, self.loo)) / len(full)

    def _read(
        self, rollout: Rollout, logprobs: LogProbs, supporting: Sequence[str]
    ) -> tuple[Sequence[float], list[Sequence[float]], list[float]]:
        """Return the log-probabilities in the full context, and without each document.

        The plain sums of the latter are the third item.
        """
        full = checked_logprobs(logprobs.full, "logprobs.full")
        if not full and rollout.parsed.text.strip():
            raise EvidenceError("no value for a response that has text", "logprobs.full")
        count = rollout.response_tokens
        if count is not None and count != len(full):
            raise EvidenceError(
                f"one value per response token: expected {count}, found {len(full)}",
                "logprobs.full",
            )
        without: list[Sequence[float]] = []
        for label in supporting:
            values = logprobs.without.get(label) or values_without(rollout, label)
            if values is None:
                raise DataError(
                    "missing: add the log-probabilities without this document",
                    f"logprobs.without.{label}",
                )
            if len(values) != len(full):
                raise EvidenceError(
                    f"as many values as logprobs.full: expected {len(full)}, found {len(values)}",
                    f"logprobs.without.{label}",
                )
            without.append(values)
        sums = list(map(sum, without))
        # If no value is positive, no value is less than the sum of all values.
        if full and not (sum(sums) >= LEAST and max(map(max, without)) <= 0.0):
            without = [
                checked_logprobs(values, f"logprobs.without.{label}")
                for values, label in zip(without, supporting, strict=True)
            ]
            sums = list(map(sum, without))
        if self.span == "answer":
            start, end = self._answer_span(rollout, logprobs)
            full = full[start:end]
            without = [values[start:end] for values in without]
            sums = list(map(sum, without))
        return full, without, sums

    def _answer_span(self, rollout: Rollout, logprobs: LogProbs) -> tuple[int, int]:
        n = len(logprobs.full)
        if logprobs.answer_span is None:
            if "<think>" in rollout.parsed.text:
                if "</think>" not in rollout.parsed.text:
                    return n, n  # unclosed thinking: there is no answer
                raise DataError(
                    "missing: span=answer requires the token range after the thinking",
                    "logprobs.answer_span",
                )
            return 0, n
        start, end = logprobs.answer_span
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
    """Return exp(−S/T), the perplexity per token, at most e^700. The paper writes exp(−S)."""
    return math.exp(min(-logprob / tokens, 700.0))
