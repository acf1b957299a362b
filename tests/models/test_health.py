"""The states of the servers of a model, in virtual time."""

from __future__ import annotations

import pickle
import time

import pytest

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import Models
from rag_rewards.models.health import BackendUnavailable, Health, healths, unavailable_cause
from rag_rewards.testing import TableJudge


class Clock:
    """The time that the health reads."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def fail(health: Health, clock: Clock, times: int, apart: float = 1.0) -> None:
    for _ in range(times):
        clock.now += apart
        health.record_failure("status 500", 0.1)


def test_consecutive_failures_open_it(clock: Clock) -> None:
    health = Health("judge m", failures=5, seconds=3.0)
    fail(health, clock, 4)
    health.check(health.start_call())
    assert health.state == "closed"
    fail(health, clock, 1)
    assert health.state == "open"
    clock.now += 1
    with pytest.raises(BackendUnavailable) as caught:
        health.check(health.start_call())
    assert caught.value.retry_after == pytest.approx(2.0)
    assert str(caught.value) == ("judge m: not sent: 5 failures in a row; the last one: status 500")


def test_a_success_between_failures_keeps_it_closed(clock: Clock) -> None:
    health = Health(failures=3, seconds=1.0)
    for _ in range(10):
        fail(health, clock, 2)
        health.record_success(0.1)
    assert health.state == "closed"


def test_simultaneous_failures_of_a_restart_keep_it_closed(clock: Clock) -> None:
    health = Health(failures=3, seconds=5.0)
    fail(health, clock, 64, apart=0.0)
    assert health.state == "closed"
    clock.now += 4.95
    fail(health, clock, 1, apart=0.0)
    assert health.state == "open"


def test_simultaneous_timeouts_open_it(clock: Clock) -> None:
    """The failures last as long as the first of these requests."""
    health = Health(failures=3, seconds=5.0)
    for _ in range(3):
        health.record_failure("no answer within 60 s", 60.0)
    assert health.state == "open"


def test_without_a_number_of_failures_it_stays_closed(clock: Clock) -> None:
    health = Health()
    fail(health, clock, 1000)
    health.check(health.start_call())
    assert health.state == "closed"
    assert health.unavailable is None


def test_giving_up_ends_the_calls_under_way_and_no_later_one(clock: Clock) -> None:
    health = Health("judge m")
    under_way = health.start_call()
    health.check(under_way)
    health.give_up("status 401", 0.1)
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match="judge m: not sent: status 401"):
            health.check(under_way)
        assert health.unavailable is None
        for later in (health.start_call(), health.start_call()):
            health.check(later)
    health.record_success(0.1)
    health.check(under_way)


def test_giving_up_opens_it_for_its_time(clock: Clock) -> None:
    health = Health(seconds=2.0)
    health.give_up("status 401", 0.1)
    assert health.state == "open"
    with pytest.raises(BackendUnavailable):
        health.check(health.start_call())
    clock.now += 2.0
    health.check(health.start_call())


def test_without_a_number_of_failures_a_later_call_waits_for_servers_that_fail(
    clock: Clock,
) -> None:
    health = Health()
    health.give_up("status 404", 0.1)
    later = health.start_call()
    health.check(later)
    fail(health, clock, 3)
    health.check(later)


@pytest.fixture
def half_open(clock: Clock) -> Health:
    health = Health(failures=1, seconds=2.0)
    fail(health, clock, 3)
    assert health.state == "open"
    clock.now += 2.0
    assert health.state == "half-open"
    return health


def test_one_call_tests_the_servers(half_open: Health, clock: Clock) -> None:
    test, *others = (half_open.start_call() for _ in range(4))
    for _ in range(2):
        half_open.check(test)
    for other in others:
        with pytest.raises(BackendUnavailable):
            half_open.check(other)
    recovered: list[bool] = []
    half_open.on_recovery = lambda: recovered.append(True)
    half_open.record_success(0.1)
    half_open.record_success(0.1)
    for call in (test, *others):
        half_open.check(call)
    assert half_open.state == "closed"
    assert recovered == [True]


def test_a_failed_test_opens_it_again(half_open: Health, clock: Clock) -> None:
    test = half_open.start_call()
    half_open.check(test)
    clock.now += 0.5
    half_open.record_failure("status 503", 0.5)
    assert half_open.state == "open"
    clock.now += 1.9
    with pytest.raises(BackendUnavailable, match="status 503"):
        half_open.check(half_open.start_call())
    clock.now += 0.1
    half_open.check(half_open.start_call())
    with pytest.raises(BackendUnavailable):
        half_open.check(test)


def test_a_test_without_a_result_is_replaced(half_open: Health, clock: Clock) -> None:
    half_open.check(half_open.start_call())
    clock.now += 1.9
    other = half_open.start_call()
    with pytest.raises(BackendUnavailable):
        half_open.check(other)
    clock.now += 0.1
    half_open.check(other)


def test_a_late_failure_does_not_extend_the_open_state(clock: Clock) -> None:
    health = Health(failures=1, seconds=2.0)
    fail(health, clock, 3)
    clock.now += 1.9
    health.record_failure("late", 30.0)
    clock.now += 0.1
    assert health.state == "half-open"


def test_requests_are_reported(clock: Clock) -> None:
    requests: list[tuple[bool, float]] = []
    health = Health(on_request=lambda *request: requests.append(request))
    health.record_success(0.25)
    health.record_failure("x", 0.5)
    assert requests == [(True, 0.25), (False, 0.5)]
    assert health.successes == 1


def test_models_in_the_process_have_no_health() -> None:
    judge = TableJudge(lambda question: 1)
    assert healths(Models(judge=judge)) == {}
    judge.health = Health()  # type: ignore[attr-defined]
    assert healths(Models(judge=judge)) == {"judge": judge.health}  # type: ignore[attr-defined]


def test_the_cause_of_an_error() -> None:
    unavailable = BackendUnavailable("down", retry_after=2.0)
    error = BackendError("a row")
    assert unavailable_cause(error) is None
    error.__cause__ = unavailable
    assert unavailable_cause(error) is unavailable
    assert unavailable_cause(unavailable) is unavailable
    assert unavailable_cause(None) is None
    assert str(pickle.loads(pickle.dumps(unavailable))) == "down"  # noqa: S301
