"""The limits of requests to the servers of a model: times, attempts and concurrency."""

from __future__ import annotations

from dataclasses import dataclass

from rag_rewards.errors import UsageError

_POSITIVE = ("timeout", "deadline", "concurrency", "batch")


@dataclass(frozen=True)
class Limits:
    """Timeouts, retries and concurrency of the requests to the servers of a model.

    timeout       seconds for one HTTP request
    deadline      seconds for one call with all its requests; None for no limit
    retries       number of further attempts after a connection error, a timeout, or a status such
                  as 429 or 5xx. A 429 is no attempt while the servers answer other requests, and
                  the second timeout of a request is its last one
    backoff       seconds before the second attempt, times 0.5 to 1; doubles up to 30 s
    concurrency   number of requests in progress on each server, for all calls on one event loop
    batch         number of prompts or texts in one HTTP request

    Raises UsageError for values out of range.
    """

    timeout: float = 600.0
    deadline: float | None = None
    retries: int = 8
    backoff: float = 0.5
    concurrency: int = 16
    batch: int = 16

    def __post_init__(self) -> None:
        for name in ("retries", "backoff"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must be at least 0, found {getattr(self, name)}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name} must be greater than 0, found {value}")
