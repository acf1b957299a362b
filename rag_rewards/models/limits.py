"""The limits of requests to the servers of a model: times, attempts, concurrency and rates."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from rag_rewards.errors import UsageError

_POSITIVE = "timeout deadline concurrency batch requests_per_minute tokens_per_minute".split()


@dataclass(frozen=True)
class Limits:
    """Timeouts, retries, concurrency and rates of the requests to the servers of a model.

    timeout       seconds for one HTTP request
    deadline      seconds for one call with all its requests; None for no limit
    retries       number of further attempts after a connection error, a timeout, or a status such
                  as 429 or 5xx. A 429 is no attempt while the servers answer other requests, and
                  the second timeout of a request is its last one
    backoff       seconds before the second attempt, times 0.5 to 1; doubles up to 30 s
    concurrency   number of requests in progress on each server, for all calls on one event loop
    batch         number of prompts or texts in one HTTP request
    requests_per_minute, tokens_per_minute
                  rates of the requests, spread evenly with bursts of one second; None for no limit

    Raises UsageError for values out of range.
    """

    timeout: float = 600.0
    deadline: float | None = None
    retries: int = 8
    backoff: float = 0.5
    concurrency: int = 16
    batch: int = 16
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    def __post_init__(self) -> None:
        for name in ("retries", "backoff"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must be at least 0, found {getattr(self, name)}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name} must be greater than 0, found {value}")


class RateLimit:
    """A rate that is spread evenly, with bursts of one second. `None` is no limit.

    The methods can be called from several threads. aiolimiter is not used, because its limiters
    belong to one event loop: trainers start an event loop for each batch, and a limit must hold
    across them.

    >>> limit = RateLimit(120)
    >>> [limit.take(1, now=10.0) for _ in range(5)]
    [0.0, 0.0, 0.5, 1.0, 1.5]
    """

    def __init__(self, per_minute: float | None) -> None:
        self._seconds_each = 60.0 / per_minute if per_minute else 0.0
        self._paid_until = 0.0
        self._lock = threading.Lock()

    def take(self, amount: float, now: float) -> float:
        """Use an amount, and return the seconds to wait before it may be used.

        `now` is the current time in seconds. An amount above one second's share can pass at once
        if nothing was used before; later amounts wait for it.
        """
        cost = amount * self._seconds_each
        with self._lock:
            start = max(self._paid_until, now)
            self._paid_until = start + cost
        return max(0.0, start + min(cost, 1.0) - 1.0 - now)

    def give_back(self, amount: float) -> None:
        """Return an amount that was taken and not used; negative if more was used."""
        with self._lock:
            self._paid_until -= amount * self._seconds_each
