"""Metrics for Prometheus, and data of the status page."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_rewards.errors import RolloutError, needs_extra
from rag_rewards.models.health import Health
from rag_rewards.rollout import Score, ScoreOrError
from rag_rewards.rows.decisions import decided_as
from rag_rewards.server.request_errors import RequestError
from rag_rewards.server.tracing import Tracing

log = logging.getLogger("rag_rewards.server")

LAST_ERRORS = 20
"""Number of errors on the status page."""
RATE_SECONDS = 60
"""Time over which the rate is computed."""
MAX_MESSAGE = 300
"""Characters of an error message that are shown."""
_STATES = {"closed": 0, "half-open": 1, "open": 2}
_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass
class Rate:
    """The events per second over the last minute, in slots of one second."""

    started: float = field(default_factory=time.monotonic)
    _slots: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=RATE_SECONDS))

    def add(self, count: int) -> None:
        now = int(time.monotonic())
        if self._slots and self._slots[-1][0] == now:
            self._slots[-1] = (now, self._slots[-1][1] + count)
        else:
            self._slots.append((now, count))

    @property
    def per_second(self) -> float:
        now = time.monotonic()
        recent = sum(count for at, count in self._slots if at > now - RATE_SECONDS)
        return recent / max(min(now - self.started, RATE_SECONDS), 1.0)


def short_message(error: BaseException) -> str:
    """Return the message of an error, cut, and without characters that UTF-8 cannot encode."""
    return str(error)[:MAX_MESSAGE].encode("utf-8", "replace").decode()


def log_refusal(error: RequestError) -> None:
    """Log why a request is answered with an error. The client sees the same text."""
    message = "request refused with status %d, %s: %s"
    reason = f"{error.path}: {short_message(error)}" if error.path else short_message(error)
    fields = {"status": error.status, "type": error.kind, "path": error.path}
    log.warning(message, error.status, error.kind, reason, extra={"fields": fields})


class Telemetry:
    """The metrics of one server, in a registry of its own, and its traces."""

    def __init__(self, components: Iterable[str]) -> None:
        with needs_extra("server", "prometheus-client"):
            from prometheus_client import CollectorRegistry, Gauge, Histogram, Summary
            from prometheus_client import Counter as Count
        self.tracing = Tracing()
        self.rate = Rate()
        self.last_errors: deque[dict[str, Any]] = deque(maxlen=LAST_ERRORS)
        self.registry = registry = CollectorRegistry()
        name = "rag_rewards_"
        requests = Count(name + "requests", "Requests", ["route", "status"], registry=registry)
        latency = Histogram(
            name + "request_seconds",
            "Seconds from the first byte of a request to the last byte of its response",
            ["route"],
            buckets=_LATENCIES,
            registry=registry,
        )
        self._requests: dict[tuple[str, int], Any] = {}
        self._latency: dict[str, Any] = {}
        self._new_request, self._new_latency = requests.labels, latency.labels
        self.reward = Summary(name + "reward", "Rewards", registry=registry)
        self.answers = Count(
            name + "answers",
            "Answers by decision: right, wrong, undecided, nothing in common, judge",
            ["decision"],
            registry=registry,
        )
        parts = Summary(name + "component", "Components", ["component"], registry=registry)
        self.components = {component: parts.labels(component) for component in components}
        self.errors = Count(name + "errors", "Unscored rollouts", ["type"], registry=registry)
        self.substituted = Count(
            name + "substituted", "Unscored rollouts that received --error-value", registry=registry
        )
        self.disconnected = Count(
            name + "clients_gone",
            "Clients that disconnected early",
            registry=registry,
        )
        self.queue = Gauge(name + "queue_rollouts", "Waiting rollouts", registry=registry)
        self.in_flight = Gauge(name + "requests_in_flight", "Requests in flight", registry=registry)
        self._request_errors = Count(
            name + "request_errors", "Requests with an error", ["type"], registry=registry
        )
        self._calls = Count(
            name + "backend_calls",
            "Requests to the servers of models",
            ["backend", "outcome"],
            registry=registry,
        )
        self._call_seconds = Histogram(
            name + "backend_seconds",
            "Seconds of a request to the server of a model",
            ["backend"],
            buckets=_LATENCIES,
            registry=registry,
        )
        self._states = Gauge(
            name + "backend_state",
            "Servers of a model: 0 closed (requests are sent), 1 half-open, 2 open",
            ["backend"],
            registry=registry,
        )
        self.scored = 0
        self.failed: Counter[str] = Counter()
        self._sums: dict[str, list[float]] = {}

    def record_request(self, route: str, status: int, seconds: float) -> None:
        """Record a request, the status of its response, and its duration."""
        key = (route, status)
        if key not in self._requests:
            self._requests[key] = self._new_request(route, str(status))
        if route not in self._latency:
            self._latency[route] = self._new_latency(route)
        self._requests[key].inc()
        self._latency[route].observe(seconds)

    def watch(self, backend: str, health: Health) -> None:
        """Show the state of the servers of a model, and record the requests to them."""
        self._states.labels(backend).set_function(lambda: _STATES[health.state])

        def record(is_success: bool, seconds: float) -> None:
            self._calls.labels(backend, "success" if is_success else "failure").inc()
            self._call_seconds.labels(backend).observe(seconds)
            self.tracing.record_call(backend, is_success, seconds)

        def log_recovery() -> None:
            log.warning("the server of the %s responds again", backend)

        health.on_request, health.on_recovery = record, log_recovery

    def record_request_error(self, kind: str) -> None:
        """Record a request that is answered with an error of this type."""
        self._request_errors.labels(kind).inc()

    def record(self, results: Sequence[ScoreOrError]) -> None:
        """Record the scores and errors of rollouts."""
        self.rate.add(len(results))
        for result in results:
            if isinstance(result, RolloutError):
                self._record_error(result)
                continue
            self._record_score(result)

    def _record_score(self, score: Score) -> None:
        self.scored += 1
        if decision := decided_as(score.details):
            self.answers.labels(decision).inc()
        if score.value is not None:
            self.reward.observe(score.value)
            self._sum("reward", score.value)
        for name, value in score.components.items():
            if value is not None:
                self.components[name].observe(value)
                self._sum(name, value)

    def _record_error(self, error: RolloutError) -> None:
        kind, message = type(error).__name__, short_message(error)
        self.errors.labels(kind).inc()
        self.failed[kind] += 1
        self.last_errors.append({"type": kind, "message": message, "time": time.time()})

    def _sum(self, name: str, value: float) -> None:
        sums = self._sums.setdefault(name, [0, 0.0])
        sums[0] += 1
        sums[1] += value

    def exposition(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def status(self, waiting: int = 0) -> dict[str, Any]:
        """Return counts, rate, means since the start, and the latest errors, newest first."""
        return {
            "uptime_seconds": round(time.monotonic() - self.rate.started, 1),
            "rollouts_scored": self.scored,
            "rollouts_failed": dict(self.failed),
            "rollouts_per_second": round(self.rate.per_second, 2),
            "rollouts_waiting": waiting,
            "means": {name: total / n for name, (n, total) in self._sums.items()},
            "last_errors": list(reversed(self.last_errors)),
        }
