"""The servers of one model: their addresses, their load, and the limits of requests to them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from rag_rewards.errors import UsageError
from rag_rewards.models.addresses import Address, parse_address
from rag_rewards.models.http_responses import HttpError


@dataclass(frozen=True)
class Limits:
    """Timeouts, retries and concurrency of the requests to servers.

    timeout       seconds for one HTTP request
    deadline      seconds for one call with all its requests; None for no limit
    retries       number of further attempts after a connection error, or a status such as 429 or
                  5xx
    backoff       seconds before the second attempt on the same server; doubles up to 30 s
    concurrency   number of groups, and of HTTP requests, in progress on each server
    batch         number of prompts in one HTTP request

    Raises UsageError for values out of range.
    """

    timeout: float = 600.0
    deadline: float | None = None
    retries: int = 8
    backoff: float = 0.5
    concurrency: int = 16
    batch: int = 16

    def __post_init__(self) -> None:
        for name in ("timeout", "backoff", "concurrency", "batch"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be greater than 0, found {getattr(self, name)}")
        if self.retries < 0:
            raise UsageError(f"retries must be at least 0, found {self.retries}")
        if self.deadline is not None and self.deadline <= 0:
            raise UsageError(f"deadline must be greater than 0, found {self.deadline}")


class Load:
    """The number of tokens in progress on a server. Calls of several threads share it."""

    def __init__(self) -> None:
        self.tokens = 0
        self._lock = threading.Lock()

    def add(self, tokens: int) -> None:
        """Add tokens; remove them if the number is negative."""
        with self._lock:
            self.tokens += tokens


@dataclass
class Endpoint:
    """A server in one call: its address, its load, and the time of the next allowed request.

    All calls share the load. The time is a value of `time.monotonic`, and `last_error` is the
    failure that set it. Both belong to one call, so that a long Retry-After affects no later one.
    """

    address: Address
    load: Load = field(default_factory=Load, repr=False)
    available_at: float = 0.0
    last_error: HttpError | None = None

    def for_call(self) -> Endpoint:
        """Return the same server for another call."""
        return Endpoint(self.address, self.load)

    def set_unavailable(self, until: float, error: HttpError) -> None:
        """Allow no request before a time, unless an earlier failure set a later one."""
        if until > self.available_at:
            self.available_at, self.last_error = until, error

    @property
    def url(self) -> str:
        """The URL, without credentials."""
        return self.address.url

    @property
    def headers(self) -> dict[str, str]:
        """Headers for this server only."""
        authorization = self.address.authorization
        return {} if authorization is None else {"authorization": authorization}


def endpoints(urls: str | Sequence[str]) -> tuple[Endpoint, ...]:
    """Return the servers of these URLs, without duplicates. UsageError for an invalid URL."""
    addresses = [urls] if isinstance(urls, str) else list(urls)
    if not addresses:
        raise UsageError("url contains no address of a server: pass at least one")
    return tuple(Endpoint(address) for address in dict.fromkeys(map(parse_address, addresses)))
