"""Whether the servers of a model respond. Requests to servers that fail are refused at once.

Every model on servers has a `Health`, which its client updates and which the reward server reads
for its routes /health and /metrics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import Models

State = Literal["closed", "half-open", "open"]
KINDS = ("policy", "generator", "entailment", "judge", "similarity")
TEST_SECONDS = 1.0
"""Time after which a client can try again while another call tests the servers."""


class BackendUnavailable(BackendError):
    """A request that is not sent, because the servers of the model fail.

    retry_after  seconds after which the request can succeed
    """

    def __init__(self, message: str, path: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, path)
        self.retry_after = retry_after


def _ignore_request(is_success: bool, seconds: float) -> None:
    """Do nothing after a request."""


@dataclass
class Health:
    """The state of the servers of one model, which recovers by itself.

    closed     Requests are sent.
    open       The servers failed: requests are refused, for `seconds` after the last failure.
    half-open  The requests of one call are sent; after `seconds` without a result, those of another
               one. A success closes it, a failure opens it again unless `failures` is None.

    The servers have failed after `failures` consecutive failures, during `seconds` or more, and
    when the client gives up, because every request would fail. The calls that are under way then
    end, since their requests are refused in all states but closed. By default, `seconds` is 0, so
    that later calls ask the servers at once; a reward server sets both values.

    name         name of the model and its servers, for messages
    failures     number of consecutive failures; None to wait for servers that fail
    seconds      minimum duration of the failures, and duration of the open state
    on_request   called after each request, with whether it succeeded, and its duration in seconds
    on_recovery  called when the servers respond again

    A request fails if there is no response, or one with status 408, 425, 429 or 5xx, or one that
    cannot be decoded. The methods can be called from several threads.
    """

    name: str = "backend"
    failures: int | None = None
    seconds: float = 0.0
    on_request: Callable[[bool, float], None] = _ignore_request
    on_recovery: Callable[[], None] = lambda: None
    cause: str = field(default="", init=False)
    """Why requests are refused."""
    successes: int = field(default=0, init=False)
    """Number of requests with a response."""
    _in_a_row: int = field(default=0, init=False)
    _without_result: int = field(default=0, init=False)
    _failing_since: float = field(default=0.0, init=False)
    _opened: float | None = field(default=None, init=False)
    _calls: int = field(default=0, init=False)
    _last_call: int = field(default=0, init=False)
    """The last call that was under way when the servers failed."""
    _test: tuple[int, float] | None = field(default=None, init=False)
    """The call that tests the servers, and the time of its first request."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def state(self) -> State:
        """The state at this time."""
        if self._opened is None:
            return "closed"
        return "open" if self._left() > 0 else "half-open"

    @property
    def unavailable(self) -> BackendUnavailable | None:
        """The error of a new call while the state is open, otherwise None."""
        left = self._left()
        return self._refusal(left) if left > 0 else None

    def start_call(self) -> int:
        """Return the number of a call that starts now, for `check`."""
        with self._lock:
            self._calls += 1
            return self._calls

    def check(self, call: int) -> None:
        """Raise BackendUnavailable unless a request of a call may be sent now."""
        if self._opened is None:
            return
        with self._lock:
            if self._opened is None:
                return
            left = self._left()
            if left > 0 or call <= self._last_call:
                raise self._refusal(left)
            if self._test is not None and self._test[0] == call:
                return
            now = time.monotonic()
            if self._test is not None and now < self._test[1] + self.seconds:
                raise self._refusal(TEST_SECONDS)
            self._test = call, now

    def record_success(self, seconds: float) -> None:
        """Record a response after this time."""
        with self._lock:
            was_open = self._opened is not None
            self.successes += 1
            self._in_a_row, self._opened, self._test = 0, None, None
        self.on_request(True, seconds)
        if was_open:
            self.on_recovery()

    def record_failure(self, cause: str, seconds: float) -> None:
        """Record a request that failed after this time."""
        with self._lock:
            now = time.monotonic()
            if not self._in_a_row:
                self._failing_since = now - seconds
            self._in_a_row += 1
            is_long = now - self._failing_since >= self.seconds
            is_often = self.failures is not None and self._in_a_row >= self.failures
            is_failed_test = self.failures is not None and self._test is not None
            if is_failed_test or (self._opened is None and is_often and is_long):
                self._open(f"{self._in_a_row} failures in a row; the last one: {cause}")
        self.on_request(False, seconds)

    def give_up(self, cause: str, seconds: float) -> None:
        """Record a failure after this time that every other request would have, too."""
        with self._lock:
            self._open(cause)
        self.on_request(False, seconds)

    def record_result(self, failure: str | None, limit: int) -> None:
        """Record why an item has no result, and give up after `limit` such items in a row."""
        with self._lock:
            self._without_result = 0 if failure is None else self._without_result + 1
            if self._without_result >= limit:
                self._open(f"{limit} questions in a row had no result; the last one: {failure}")
                self._without_result = 0

    def _open(self, cause: str) -> None:
        self.cause, self._opened = cause, time.monotonic()
        self._last_call, self._test = self._calls, None

    def _left(self) -> float:
        """Return the seconds until a new call may send a request; 0 if it may send one now."""
        opened = self._opened
        return 0.0 if opened is None else max(opened + self.seconds - time.monotonic(), 0.0)

    def _refusal(self, retry_after: float) -> BackendUnavailable:
        return BackendUnavailable(f"{self.name}: not sent: {self.cause}", retry_after=retry_after)


def healths(models: Models) -> dict[str, Health]:
    """Return the health of each model on servers, by the kind of the model."""
    each = {kind: getattr(getattr(models, kind), "health", None) for kind in KINDS}
    return {kind: health for kind, health in each.items() if isinstance(health, Health)}


def unavailable_cause(error: BaseException | None) -> BackendUnavailable | None:
    """Return the BackendUnavailable that is the error, or that caused it; None without one."""
    while error is not None:
        if isinstance(error, BackendUnavailable):
            return error
        error = error.__cause__
    return None
