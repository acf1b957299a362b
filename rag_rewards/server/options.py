"""The settings of a server."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.scoring.rollout_dump import RolloutDump

MIB = 1 << 20
_POSITIVE = "max_body max_row max_rows deadline batch_rows in_flight breaker_seconds".split()


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """The limits of a request, and the response to an invalid row."""

    max_body: float = 16
    """Maximum size of a request body, in MiB."""
    max_rows: int = 1024
    """Maximum number of rows in a request."""
    deadline: float = 120.0
    """Maximum time of a request, in seconds."""
    batch_ms: float = 5.0
    """Maximum time, in milliseconds, that a request waits for further requests to form a batch."""
    error_value: float | None = None
    """Value that POST /openrlhf returns for an invalid row. By default, it returns an error. The
    failure of a model is always an error."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions(RequestOptions):
    """The settings of a server. A limit of memory that is exceeded is answered with 503."""

    max_row: float = 4
    """Maximum size of a row, in MiB."""
    breaker_failures: int = 10
    """Number of consecutive failures of a model server that make requests fail at once; 0: none."""
    breaker_seconds: float = 5.0
    """Minimum duration of these failures, and time until the server is tried again, in seconds."""
    token: str | None = None
    """Required token; None for no authentication."""
    batch_rows: int = 256
    """Maximum number of rollouts in a batch."""
    in_flight: int = 1
    """Number of batches that the models process at the same time."""
    max_waiting: int = 16_384
    """Maximum number of rollouts that wait for a model."""
    max_pending: int = 128 << 20
    """Maximum size of the requests that are received, wait or are scored, in bytes."""
    logs_requests: bool = False
    """Whether to log each request."""
    dump: RolloutDump | None = None
    """File to which every scored rollout is written."""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise OptionError(
                    f"{{{name}}} must be above 0 and finite, found {{value}}", value=value
                )
        if self.breaker_failures < 0:
            raise OptionError("{breaker_failures} must be 0 or more")
        if not self.batch_ms >= 0:
            raise OptionError("{batch_ms} must be 0 or more")
        if self.error_value is not None and not math.isfinite(self.error_value):
            raise OptionError(
                "{error_value} must be a finite number, found {value}", value=self.error_value
            )
        if self.token is not None and not self.token.isascii():
            raise UsageError(
                "the token must consist of ASCII characters, because clients encode others "
                "differently"
            )
