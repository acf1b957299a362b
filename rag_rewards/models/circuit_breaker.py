"""A circuit breaker for the server of a model, which refuses requests while the server fails.

Every model on a server has one. It refuses no request until the reward server activates it
(`rag_rewards.server.backend_monitor`): other users wait for a server that fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from rag_rewards.errors import BackendError

State = Literal["closed", "half-open", "open"]
PROBE_RETRY_SECONDS = 1.0
"""Time after which a client can try again while another request probes the server."""


class BackendUnavailable(BackendError):
    """A request that is not sent, because the server of the model failed repeatedly.

    retry_after  seconds after which the request can succeed
    """

    def __init__(self, message: str, path: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, path)
        self.retry_after = retry_after


def _ignore_call(is_success: bool, seconds: float) -> None:
    """Do nothing after a request."""


@dataclass
class CircuitBreaker:
    """Refuses requests to a server that fails, and lets single requests test whether it recovers.

    closed     Requests are sent.
    open       After `failures` consecutive failures, during `seconds` or more, requests are refused
               for `seconds`.
    half-open  One request is sent; after `seconds` without a result, another one. A success closes
               the breaker, a failure opens it again.

    name      name of the model and its server, for messages
    failures  number of consecutive failures; None to refuse no request
    seconds   minimum duration of the failures, and duration of the open state
    on_call   called after each request, with whether it succeeded, and its duration in seconds
    on_close  called when the server has recovered

    A request fails if there is no response, or one with status 408, 425, 429 or 5xx, or one that
    cannot be decoded. The methods can be called from several threads.
    """

    name: str = "backend"
    failures: int | None = None
    seconds: float = 5.0
    on_call: Callable[[bool, float], None] = _ignore_call
    on_close: Callable[[], None] = lambda: None
    cause: str = field(default="", init=False)
    """The last failure."""
    _count: int = field(default=0, init=False)
    _failing_since: float = field(default=0.0, init=False)
    _opened: float | None = field(default=None, init=False)
    _probe: float | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def state(self) -> State:
        """The state at this time."""
        if self._opened is None:
            return "closed"
        return "open" if self._left() > 0 else "half-open"

    @property
    def unavailable(self) -> BackendUnavailable | None:
        """The error of requests while the breaker is open, otherwise None."""
        left = self._left()
        return self._refusal(left) if left > 0 else None

    def check(self) -> None:
        """Raise BackendUnavailable unless a request may be sent now."""
        with self._lock:
            if self._opened is None:
                return
            if (left := self._left()) > 0:
                raise self._refusal(left)
            now = time.monotonic()
            if self._probe is not None and now < self._probe + self.seconds:
                raise self._refusal(PROBE_RETRY_SECONDS)
            self._probe = now

    def record_success(self, seconds: float) -> None:
        """Record a response after this time."""
        with self._lock:
            was_open = self._opened is not None
            self._count, self._opened, self._probe = 0, None, None
        self.on_call(True, seconds)
        if was_open:
            self.on_close()

    def record_failure(self, cause: str, seconds: float) -> None:
        """Record a request that failed after this time."""
        with self._lock:
            now = time.monotonic()
            if not self._count:
                self._failing_since = now - seconds
            self._count += 1
            self.cause = cause
            if self._probe is not None:
                self._opened, self._probe = now, None
            elif (
                self._opened is None
                and self.failures is not None
                and self._count >= self.failures
                and now - self._failing_since >= self.seconds
            ):
                self._opened = now
        self.on_call(False, seconds)

    def _left(self) -> float:
        """Return the seconds until the next request may be sent; 0 if it may be sent now."""
        opened = self._opened
        return 0.0 if opened is None else max(opened + self.seconds - time.monotonic(), 0.0)

    def _refusal(self, retry_after: float) -> BackendUnavailable:
        message = (
            f"{self.name} failed {self._count} times in a row, and the request was not sent; the "
            f"last failure: {self.cause}"
        )
        return BackendUnavailable(message, retry_after=retry_after)


def unavailable_cause(error: BaseException | None) -> BackendUnavailable | None:
    """Return the BackendUnavailable that is the error, or that caused it; None without one."""
    while error is not None:
        if isinstance(error, BackendUnavailable):
            return error
        error = error.__cause__
    return None
