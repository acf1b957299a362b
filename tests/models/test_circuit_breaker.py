"""The states of a circuit breaker, in virtual time."""

from __future__ import annotations

import pickle
import time

import pytest

from rag_rewards.errors import BackendError
from rag_rewards.models.circuit_breaker import (
    BackendUnavailable,
    CircuitBreaker,
    unavailable_cause,
)


class Clock:
    """The time that the breaker reads."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def fail(breaker: CircuitBreaker, clock: Clock, times: int, apart: float = 1.0) -> None:
    for _ in range(times):
        clock.now += apart
        breaker.record_failure("status 500", 0.1)


def test_consecutive_failures_open_it(clock: Clock) -> None:
    breaker = CircuitBreaker("judge at http://a", failures=5, seconds=3.0)
    fail(breaker, clock, 4)
    breaker.check()
    assert breaker.state == "closed"
    fail(breaker, clock, 1)
    assert breaker.state == "open"
    clock.now += 1
    with pytest.raises(BackendUnavailable) as caught:
        breaker.check()
    assert caught.value.retry_after == pytest.approx(2.0)
    assert str(caught.value) == (
        "judge at http://a failed 5 times in a row, and the request was not sent; the last "
        "failure: status 500"
    )


def test_a_success_between_failures_keeps_it_closed(clock: Clock) -> None:
    breaker = CircuitBreaker(failures=3, seconds=1.0)
    for _ in range(10):
        fail(breaker, clock, 2)
        breaker.record_success(0.1)
    assert breaker.state == "closed"


def test_simultaneous_failures_of_a_restart_keep_it_closed(clock: Clock) -> None:
    breaker = CircuitBreaker(failures=3, seconds=5.0)
    fail(breaker, clock, 64, apart=0.0)
    assert breaker.state == "closed"
    clock.now += 4.95
    fail(breaker, clock, 1, apart=0.0)
    assert breaker.state == "open"


def test_simultaneous_timeouts_open_it(clock: Clock) -> None:
    """The failures last as long as the first of these requests."""
    breaker = CircuitBreaker(failures=3, seconds=5.0)
    for _ in range(3):
        breaker.record_failure("no answer within 60 s", 60.0)
    assert breaker.state == "open"


def test_without_a_number_of_failures_it_stays_closed(clock: Clock) -> None:
    breaker = CircuitBreaker()
    fail(breaker, clock, 1000)
    breaker.check()
    assert breaker.state == "closed"
    assert breaker.unavailable is None


@pytest.fixture
def half_open(clock: Clock) -> CircuitBreaker:
    breaker = CircuitBreaker(failures=1, seconds=2.0)
    fail(breaker, clock, 3)
    assert breaker.state == "open"
    clock.now += 2.0
    assert breaker.state == "half-open"
    return breaker


def test_one_request_probes_the_server(half_open: CircuitBreaker, clock: Clock) -> None:
    half_open.check()
    for _ in range(3):
        with pytest.raises(BackendUnavailable):
            half_open.check()
    closed: list[bool] = []
    half_open.on_close = lambda: closed.append(True)
    half_open.record_success(0.1)
    half_open.record_success(0.1)
    half_open.check()
    half_open.check()
    assert half_open.state == "closed"
    assert closed == [True]


def test_a_failed_probe_opens_it_again(half_open: CircuitBreaker, clock: Clock) -> None:
    half_open.check()
    clock.now += 0.5
    half_open.record_failure("status 503", 0.5)
    assert half_open.state == "open"
    clock.now += 1.9
    with pytest.raises(BackendUnavailable, match="status 503"):
        half_open.check()
    clock.now += 0.1
    half_open.check()


def test_a_probe_without_a_result_is_replaced(half_open: CircuitBreaker, clock: Clock) -> None:
    half_open.check()
    clock.now += 1.9
    with pytest.raises(BackendUnavailable):
        half_open.check()
    clock.now += 0.1
    half_open.check()


def test_a_late_failure_does_not_extend_the_open_state(clock: Clock) -> None:
    breaker = CircuitBreaker(failures=1, seconds=2.0)
    fail(breaker, clock, 3)
    clock.now += 1.9
    breaker.record_failure("late", 30.0)
    clock.now += 0.1
    assert breaker.state == "half-open"


def test_calls_are_reported(clock: Clock) -> None:
    calls: list[tuple[bool, float]] = []
    breaker = CircuitBreaker(on_call=lambda *call: calls.append(call))
    breaker.record_success(0.25)
    breaker.record_failure("x", 0.5)
    assert calls == [(True, 0.25), (False, 0.5)]


def test_the_cause_of_an_error() -> None:
    unavailable = BackendUnavailable("down", retry_after=2.0)
    error = BackendError("a row")
    assert unavailable_cause(error) is None
    error.__cause__ = unavailable
    assert unavailable_cause(error) is unavailable
    assert unavailable_cause(unavailable) is unavailable
    assert unavailable_cause(None) is None
    assert str(pickle.loads(pickle.dumps(unavailable))) == "down"  # noqa: S301
