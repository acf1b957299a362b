"""Metrics for Prometheus, and data of the status page."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rag_rewards.errors import RolloutError, needs_extra
from rag_rewards.models.health import Health
from rag_rewards.rollout import Score, ScoreOrError
from rag_rewards.rows.decisions import decided_as
from rag_rewards.server.logs import log, short_message
from rag_rewards.server.tracing import Tracing

LAST_ERRORS = 20
"""Number of errors on the status page."""
RATE_SECONDS = 60
"""Time over which the rate is computed."""
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


class Telemetry:
    """The metrics of one server, in a registry of its own, and its traces.

    components  names of the components of the recipe
    waiting     returns the number of rollouts and pairs that wait for a model
    """

    def __init__(self, components: Iterable[str], waiting: Callable[[], int]) -> None:
        with needs_extra("server", "prometheus-client"):
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
        self.tracing = Tracing()
        self.rate = Rate()
        self.last_errors: deque[dict[str, Any]] = deque(maxlen=LAST_ERRORS)
        self.scored = 0
        self._registry = CollectorRegistry()

        def new(kind: Any, name: str, text: str, *labels: str, **more: Any) -> Any:
            return kind(f"rag_rewards_{name}", text, labels, registry=self._registry, **more)

        requests = new(Counter, "requests", "Requests", "route", "status")
        text = "Seconds from the first byte of a request to the last byte of its response"
        seconds = new(Histogram, "request_seconds", text, "route", buckets=_LATENCIES)
        self._requests, self._seconds = cache(requests.labels), cache(seconds.labels)
        self._reward = new(Summary, "reward", "Rewards")
        text = "Answers by decision: right, wrong, undecided, nothing in common, judge"
        self._answers = new(Counter, "answers", text, "decision")
        parts = new(Summary, "component", "Components", "component")
        self._components = {name: parts.labels(name) for name in components}
        self._errors = new(Counter, "errors", "Unscored rollouts", "type")
        text = "Unscored rollouts that received --error-value"
        self.substituted = new(Counter, "substituted", text)
        self.disconnected = new(Counter, "clients_gone", "Clients that disconnected early")
        queue = new(Gauge, "queue_rollouts", "Rollouts and pairs that wait for a model")
        queue.set_function(waiting)
        self.in_flight = new(Gauge, "requests_in_flight", "Requests in flight")
        self._request_errors = new(Counter, "request_errors", "Requests with an error", "type")
        text = "Requests to the servers of models"
        self._calls = new(Counter, "backend_calls", text, "backend", "outcome")
        text = "Seconds of a request to the server of a model"
        self._call_seconds = new(Histogram, "backend_seconds", text, "backend", buckets=_LATENCIES)
        text = "Servers of a model: 0 closed (requests are sent), 1 half-open, 2 open"
        self._states = new(Gauge, "backend_state", text, "backend")

    def record_request(self, route: str, status: int, seconds: float) -> None:
        """Record a request, the status of its response, and its duration."""
        self._requests(route, status).inc()
        self._seconds(route).observe(seconds)

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
            else:
                self._record_score(result)

    def _record_score(self, score: Score) -> None:
        self.scored += 1
        if decision := decided_as(score.details):
            self._answers.labels(decision).inc()
        if score.value is not None:
            self._reward.observe(score.value)
        for name, value in score.components.items():
            if value is not None:
                self._components[name].observe(value)

    def _record_error(self, error: RolloutError) -> None:
        kind, message = type(error).__name__, short_message(error)
        self._errors.labels(kind).inc()
        self.last_errors.append({"type": kind, "message": message, "time": time.time()})

    def exposition(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)

    def status(self, waiting: int = 0) -> dict[str, Any]:
        """Return counts, rate, means since the start, and the latest errors, newest first."""
        means = {"reward": _mean(self._reward)}
        means |= {name: _mean(component) for name, component in self._components.items()}
        return {
            "uptime_seconds": round(time.monotonic() - self.rate.started, 1),
            "rollouts_scored": self.scored,
            "rollouts_failed": {
                sample.labels["type"]: int(sample.value)
                for sample in _samples(self._errors)
                if sample.name.endswith("_total")
            },
            "rollouts_per_second": round(self.rate.per_second, 2),
            "rollouts_waiting": waiting,
            "means": {name: mean for name, mean in means.items() if mean is not None},
            "last_errors": list(reversed(self.last_errors)),
        }


def _samples(metric: Any) -> list[Any]:
    """Return the values of a metric, each with its name and its labels."""
    return [sample for family in metric.collect() for sample in family.samples]


def _mean(summary: Any) -> float | None:
    """Return the mean of the values of a summary, None without a value."""
    values = {sample.name.rpartition("_")[2]: sample.value for sample in _samples(summary)}
    return float(values["sum"] / values["count"]) if values["count"] else None
