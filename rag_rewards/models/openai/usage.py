"""The number, the cost and the latency of the requests of a judge."""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

_LATENCIES = 10_000
"""Number of latencies in memory, for the percentiles."""


@dataclass(frozen=True)
class JudgeUsage:
    """Requests, tokens, cost and latency of a judge since its construction.

    Tokens are counted by the server, and include responses without a verdict. `cost` has the
    currency of `prices`, and is None without prices. Latencies are in seconds, from sending a
    request to the end of its response or to its failure, without the time that it waited for a
    limit. The percentiles are those of the last 10,000 requests. All latencies are 0 before the
    first request.
    """

    verdicts: int = 0
    """Number of votes, from the server or from the cache."""
    requests: int = 0
    cache_hits: int = 0
    cache_faults: int = 0
    """Number of votes that could not be read from the cache or written to it."""
    failures: int = 0
    """Number of questions without a verdict."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0
    """Number of tokens of the requests whose verdicts are from the cache; not part of `cost`."""
    cached_completion_tokens: int = 0
    cost: float | None = None
    latency_mean: float = 0.0
    latency_p50: float = 0.0
    latency_p95: float = 0.0


class UsageCounter:
    """The running totals behind a `JudgeUsage`. Its methods can be called from several threads.

    prices  price of a million prompt tokens, and of a million completion tokens
    """

    def __init__(self, prices: tuple[float, float] | None) -> None:
        self._prices = prices
        self._totals: Counter[str] = Counter()
        self._seconds = 0.0
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Add numbers to the totals of these names, which are fields of `JudgeUsage`."""
        with self._lock:
            for name, amount in amounts.items():
                self._totals[name] += amount

    def add_request(self, seconds: float) -> None:
        """Add a request that took this time."""
        with self._lock:
            self._totals["requests"] += 1
            self._seconds += seconds
            self._latencies.append(seconds)

    def usage(self) -> JudgeUsage:
        """Return the totals so far."""
        with self._lock:
            totals, seconds, latencies = Counter(self._totals), self._seconds, [*self._latencies]
        latencies.sort()
        cost = None
        if self._prices is not None:
            prompt, completion = self._prices
            tokens = totals["prompt_tokens"] * prompt + totals["completion_tokens"] * completion
            cost = tokens / 1e6
        return JudgeUsage(
            **totals,
            cost=cost,
            latency_mean=seconds / totals["requests"] if totals["requests"] else 0.0,
            latency_p50=percentile(latencies, 0.5),
            latency_p95=percentile(latencies, 0.95),
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the sorted values does not exceed.

    `share` is between 0 and 1. Returns 0 without values.
    """
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
