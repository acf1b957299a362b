"""The number, the cost and the latency of the requests of a judge."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

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


@dataclass
class UsageCounter:
    """The running totals behind a `JudgeUsage`.

    `prices` are those of a million prompt tokens and of a million completion tokens. The methods
    can be called from several threads.
    """

    prices: tuple[float, float] | None
    verdicts: int = 0
    requests: int = 0
    cache_hits: int = 0
    cache_faults: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0
    cached_completion_tokens: int = 0
    seconds: float = 0.0
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES))

    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def add(self, **amounts: int) -> None:
        """Add numbers to the totals of these names."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def add_latency(self, seconds: float) -> None:
        """Add the latency of a request."""
        with self._lock:
            self.seconds += seconds
            self.latencies.append(seconds)

    def usage(self) -> JudgeUsage:
        """Return the totals so far."""
        with self._lock:
            return self._usage()

    def _usage(self) -> JudgeUsage:
        latencies = sorted(self.latencies)
        return JudgeUsage(
            verdicts=self.verdicts,
            requests=self.requests,
            cache_hits=self.cache_hits,
            cache_faults=self.cache_faults,
            failures=self.failures,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cached_prompt_tokens=self.cached_prompt_tokens,
            cached_completion_tokens=self.cached_completion_tokens,
            cost=self._cost(),
            latency_mean=self.seconds / self.requests if self.requests else 0.0,
            latency_p50=percentile(latencies, 0.5),
            latency_p95=percentile(latencies, 0.95),
        )

    def _cost(self) -> float | None:
        if self.prices is None:
            return None
        prompt, completion = self.prices
        return (self.prompt_tokens * prompt + self.completion_tokens * completion) / 1e6


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the sorted values does not exceed.

    `share` is between 0 and 1. Returns 0 without values.
    """
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
