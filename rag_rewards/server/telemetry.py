"""What the server knows of itself: counters for Prometheus, a status for people, a circuit."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_rewards.errors import MissingExtraError, RolloutError
from rag_rewards.rollout import Score, ScoreOrError

log = logging.getLogger("rag_rewards.server")

LAST_ERRORS = 20
RATE_SECONDS = 60
FORGIVEN_SECONDS = 60.0
LONGEST_MESSAGE = 300
_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Circuit:
    """Open when too large a share of the latest rollouts has no score; closed again by itself.

    `limit` is that share over the last `window` rollouts, at least `least` of them. After a minute
    without a failure it is closed as well: nobody may ask a server that says it is not ready.
    """

    def __init__(self, limit: float = 0.5, window: int = 200, least: int = 20) -> None:
        self.limit, self.window, self.least = limit, window, least
        self.cause = ""
        self._over = False
        self._last = 0.0
        self._latest: deque[bool] = deque(maxlen=window)
        self._failed = 0

    @property
    def open(self) -> bool:
        return self._over and time.monotonic() - self._last < FORGIVEN_SECONDS

    def record(self, failed: bool, cause: str = "") -> None:
        """One rollout more. What opens and closes the circuit is logged, once."""
        if len(self._latest) == self.window:
            self._failed -= self._latest[0]
        self._latest.append(failed)
        self._failed += failed
        if failed:
            self.cause, self._last = cause, time.monotonic()
        share = self._failed / len(self._latest)
        over = len(self._latest) >= self.least and share > self.limit
        if over and not self._over:
            log.error("%.0f%% of the latest rollouts have no score: %s", 100 * share, self.cause)
        elif self._over and not over:
            log.warning("scoring again; the last cause was: %s", self.cause)
        self._over = over


@dataclass
class Rate:
    """Events per second over the last minute, in slots of a second."""

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


def shown(error: BaseException) -> str:
    """An error's message: not too long, and of characters that can be sent."""
    return str(error)[:LONGEST_MESSAGE].encode("utf-8", "replace").decode()


class Telemetry:
    """Counters of one server, in a registry of its own."""

    def __init__(self, components: Iterable[str], circuit: Circuit | None = None) -> None:
        try:
            from prometheus_client import CollectorRegistry, Gauge, Histogram, Summary
            from prometheus_client import Counter as Count
        except ImportError:
            raise MissingExtraError("prometheus-client", extra="server") from None
        self.circuit = circuit or Circuit()
        self.rate = Rate()
        self.last_errors: deque[dict[str, Any]] = deque(maxlen=LAST_ERRORS)
        self.registry = registry = CollectorRegistry()
        name = "rag_rewards_"
        requests = Count(name + "requests", "Requests", ["route", "status"], registry=registry)
        latency = Histogram(
            name + "request_seconds",
            "Seconds from the first byte of a request to the last of its answer",
            ["route"],
            buckets=_LATENCIES,
            registry=registry,
        )
        self._requests: dict[tuple[str, int], Any] = {}
        self._latency: dict[str, Any] = {}
        self._new_request, self._new_latency = requests.labels, latency.labels
        self.reward = Summary(name + "reward", "Rewards given", registry=registry)
        parts = Summary(name + "component", "Components", ["component"], registry=registry)
        self.components = {component: parts.labels(component) for component in components}
        self.errors = Count(
            name + "errors", "Rollouts without a score", ["type"], registry=registry
        )
        self.substituted = Count(
            name + "substituted", "Rollouts answered with --error-value", registry=registry
        )
        self.gone = Count(name + "clients_gone", "Clients that did not wait", registry=registry)
        self.queue = Gauge(name + "queue_rollouts", "Rollouts that wait", registry=registry)
        self.scored = 0
        self.failed: Counter[str] = Counter()
        self._sums: dict[str, list[float]] = {}

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request that was answered."""
        key = (route, status)
        if key not in self._requests:
            self._requests[key] = self._new_request(route, str(status))
        if route not in self._latency:
            self._latency[route] = self._new_latency(route)
        self._requests[key].inc()
        self._latency[route].observe(seconds)

    def told(self, results: Sequence[ScoreOrError]) -> None:
        """What came of some rollouts."""
        self.rate.add(len(results))
        for result in results:
            if isinstance(result, RolloutError):
                self._tell_error(result)
                continue
            self.circuit.record(False)
            self._tell_score(result)

    def _tell_score(self, score: Score) -> None:
        self.scored += 1
        if score.value is not None:
            self.reward.observe(score.value)
            self._sum("reward", score.value)
        for name, value in score.components.items():
            if value is not None:
                self.components[name].observe(value)
                self._sum(name, value)

    def _tell_error(self, error: RolloutError) -> None:
        kind, message = type(error).__name__, shown(error)
        self.errors.labels(kind).inc()
        self.failed[kind] += 1
        self.circuit.record(True, f"{kind}: {message}")
        self.last_errors.append({"type": kind, "message": message, "time": time.time()})

    def _sum(self, name: str, value: float) -> None:
        sums = self._sums.setdefault(name, [0, 0.0])
        sums[0] += 1
        sums[1] += value

    def exposition(self) -> bytes:
        """The counters as Prometheus reads them."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def status(self, waiting: int = 0) -> dict[str, Any]:
        """For people: counts, rate, means since the start, the latest errors, newest first."""
        return {
            "uptime_seconds": round(time.monotonic() - self.rate.started, 1),
            "rollouts_scored": self.scored,
            "rollouts_failed": dict(self.failed),
            "rollouts_per_second": round(self.rate.per_second, 2),
            "rollouts_waiting": waiting,
            "means": {name: total / n for name, (n, total) in self._sums.items()},
            "last_errors": list(reversed(self.last_errors)),
        }
