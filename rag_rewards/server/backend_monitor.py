"""The servers of the models of a reward server: their circuit breakers, states and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from rag_rewards.errors import RolloutError
from rag_rewards.evidence.protocols import Models
from rag_rewards.models.circuit_breaker import (
    BackendUnavailable,
    CircuitBreaker,
    unavailable_cause,
)
from rag_rewards.rollout import ScoreOrError
from rag_rewards.server.request_errors import RequestError
from rag_rewards.server.telemetry import Telemetry, log, short_message

KINDS = ("policy", "entailment", "judge", "similarity")


class BackendMonitor:
    """Activates the circuit breakers of models on servers, and reports their states.

    models     the models; those in this process have no breaker
    telemetry  receives the number, the results and the durations of requests
    failures   number of consecutive failures that open a breaker; None to open none
    seconds    minimum duration of the failures, and duration of the open state
    """

    def __init__(
        self, models: Models, telemetry: Telemetry, failures: int | None, seconds: float
    ) -> None:
        self.breakers: Mapping[str, CircuitBreaker] = dict(_breakers(models))
        for kind, breaker in self.breakers.items():
            breaker.failures, breaker.seconds = failures, seconds
            breaker.on_call = partial(telemetry.record_call, kind)
            breaker.on_close = partial(_recovered, kind, telemetry)
            telemetry.watch_breaker(kind, breaker)

    @property
    def states(self) -> dict[str, str]:
        """The state of each breaker by kind of model: closed, half-open or open."""
        return {kind: breaker.state for kind, breaker in self.breakers.items()}

    @property
    def fault(self) -> str:
        """Why a model cannot be used; "" if all of them can."""
        for kind, breaker in self.breakers.items():
            if (error := breaker.unavailable) is not None:
                return f"{kind}: {short_message(error)}"
        return ""

    @property
    def is_any_open(self) -> bool:
        """Whether a model cannot be used."""
        return any(breaker.unavailable is not None for breaker in self.breakers.values())

    def require(self, kinds: Iterable[str]) -> None:
        """Raise RequestError with status 503 if a model of these kinds cannot be used."""
        for kind in kinds:
            breaker = self.breakers.get(kind)
            if breaker is not None and (error := breaker.unavailable) is not None:
                raise unavailable(error)

    @staticmethod
    def check(results: Iterable[ScoreOrError]) -> None:
        """Raise RequestError with status 503 if a model could not be used for a rollout."""
        for result in results:
            if isinstance(result, RolloutError) and (error := unavailable_cause(result)):
                raise unavailable(error)


def unavailable(error: BackendUnavailable) -> RequestError:
    """Return the error of a request whose model cannot be used."""
    return RequestError(
        503, "BackendUnavailable", short_message(error), retry_after=error.retry_after
    )


def _breakers(models: Models) -> Iterator[tuple[str, CircuitBreaker]]:
    for kind in KINDS:
        breaker = getattr(getattr(models, kind), "breaker", None)
        if isinstance(breaker, CircuitBreaker):
            yield kind, breaker


def _recovered(kind: str, telemetry: Telemetry) -> None:
    log.warning("the server of the %s responds again", kind)
    telemetry.circuit.clear()
