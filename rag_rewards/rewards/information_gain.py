"""Information gain: how much a turn raises the likelihood of the gold answer (IGPO)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Literal

from rag_rewards.errors import EvidenceError

Kind = Literal["prob", "log"]


def answer_likelihood(
    logprobs: Sequence[float], first_tokens: int = 0, first_weight: float = 1.0
) -> float:
    """Return the mean log-probability, in nats, of the tokens of an answer.

    The first tokens can have another weight. The weights are scaled to a mean of 1. Raises
    EvidenceError for no token, and for a value that is no log-probability. Sources: IGPO; IG-Search
    at da299c4, ig_reward.py (weights).

    >>> answer_likelihood([-1.0, -3.0]), answer_likelihood([-1.0, -3.0], 1, 3.0)
    (-2.0, -1.5)
    """
    if not logprobs:
        raise EvidenceError("an answer without tokens has no likelihood")
    for value in logprobs:
        if not value <= 1e-6 or value == -math.inf:
            raise EvidenceError(f"a log-probability must be finite and at most 0, found {value}")
    weights = [first_weight if i < first_tokens else 1.0 for i in range(len(logprobs))]
    return math.fsum(w * v for w, v in zip(weights, logprobs, strict=True)) / math.fsum(weights)


def information_gains(likelihoods: Sequence[float], kind: Kind = "prob") -> list[float]:
    """Return the gain of each turn but the last one: g_t = p_t − p_{t−1} with p = exp V, or V.

    likelihoods  V_0 of the prompt, and V_t after each turn but the last one
    kind         `prob`: gains of p; `log`: gains of V

    The sum of the gains is p_{T−1} − p_0. A negative gain is not clipped, because a policy could
    lower the likelihood first and regain it. Source: IGPO, released code at 745078b, info_gain.py.

    >>> [round(g, 6) for g in information_gains([-2.0, -1.2, -0.1])]
    [0.165859, 0.603643]
    """
    values = [_value(likelihood, kind) for likelihood in likelihoods]
    return [now - before for before, now in pairwise(values)]


def gain_over(likelihood: float, baselines: Sequence[float], kind: Kind = "log") -> float:
    """Return the gain of a turn over the same turn with other results.

    likelihood  V after the turn
    baselines   V after the turn with other results: of other questions (IG-Search), or none

    Source: IG-Search, MaYufei-NPU/IG-Search@da299c4 ig_reward.py.

    >>> round(gain_over(-0.1, [-0.9, -1.1, -1.3]), 6)
    1.0
    """
    if not baselines:
        raise EvidenceError("no likelihood with other results: give at least one")
    others = [_value(baseline, kind) for baseline in baselines]
    return _value(likelihood, kind) - math.fsum(others) / len(others)


def rises(
    likelihoods: Sequence[float],
    gains: Sequence[float | None],
    kind: Kind = "prob",
) -> list[float | None]:
    """Return the gain of each turn as far as it exceeds the greatest likelihood so far.

    likelihoods  V_0 of the prompt, and V_t after each turn but the last one
    gains        gain of each of these turns, None for a turn without a gain

    A rise counts once: the sum is at most the greatest likelihood minus that of the prompt. Without
    this, a policy earns gains again by doubting what it found and repeating the search.

    >>> V = [math.log(p) for p in (0.1, 0.9, 0.2, 0.9, 1.0)]
    >>> [round(g, 6) for g in rises(V, [0.8, -0.7, 0.7, 0.1])]
    [0.8, 0.0, 0.0, 0.1]
    """
    values = [_value(likelihood, kind) for likelihood in likelihoods]
    best = accumulate(values, max)
    over = [max(0.0, now - before) for now, before in zip(values[1:], best, strict=False)]
    return [
        None if gain is None else max(0.0, min(gain, rise))
        for gain, rise in zip(gains, over, strict=True)
    ]


def _value(likelihood: float, kind: Kind) -> float:
    return math.exp(likelihood) if kind == "prob" else likelihood
