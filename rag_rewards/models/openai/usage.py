"""The number, the tokens and the latency of the requests of a judge."""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

_LATENCIES = 10_000
"""Number of latencies in memory, for the percentile."""


@dataclass(frozen=True)
class JudgeUsage:
    """Requests, tokens and latency of a judge since its construction.

    Tokens are counted by the server, and include responses without a verdict. The latency is in
    seconds, from sending a request to the end of its response or to its failure. The percentile is
    that of the last 10,000 requests, and 0 before the first one.
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
    """Number of tokens of the requests whose verdicts are from the cache."""
    cached_completion_tokens: int = 0
    latency_p95: float = 0.0


class UsageCounter:
    """The running totals behind a `JudgeUsage`. Its methods can be called from several threads."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()
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
            self._latencies.append(seconds)

    def usage(self) -> JudgeUsage:
        """Return the totals so far."""
        with self._lock:
            totals, latencies = Counter(self._totals), sorted(self._latencies)
        return JudgeUsage(
            **totals,
            latency_p95=percentile(latencies, 0.95),
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the sorted values does not exceed.

    `share` is between 0 and 1. Returns 0 without values.
    """
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
