"""The settings of a server."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.scoring.rollout_dump import RolloutDump

_POSITIVE = "max_body max_row max_rows deadline batch_rows in_flight breaker_seconds".split()


@dataclass(frozen=True)
class ServerOptions:
    """Token, limits, batching and dump of a server.

    token         required token; None for no authentication
    max_body      maximum size of a request body, in bytes
    max_row       maximum size of a row, in bytes; for pairs of texts, in characters
    max_rows      maximum number of rows in a request
    deadline      seconds after which a request is answered with 504
    batch_wait    seconds that a request waits for others before a model is called
    batch_rows    maximum number of rollouts in a batch
    in_flight     number of batches that the models process at the same time
    max_waiting   number of waiting rollouts above which requests are answered with 503
    max_pending   size of the requests that are received, wait or are scored, in bytes, above which
                  requests are answered with 503
    breaker_failures  number of consecutive failures of the server of a model after which requests
                  for it are answered with 503; 0 for no limit
    breaker_seconds  minimum duration of these failures, and time until the server is tried again
    error_value   value that POST /openrlhf returns for an invalid row; None for an error. The
                  failure of a model is always an error
    logs_requests  whether to log each request
    dump          file to which every scored rollout is written
    """

    token: str | None = None
    max_body: int = 16 << 20
    max_row: int = 4 << 20
    max_rows: int = 1024
    deadline: float = 120.0
    batch_wait: float = 0.005
    batch_rows: int = 256
    in_flight: int = 1
    max_waiting: int = 16_384
    max_pending: int = 128 << 20
    breaker_failures: int = 10
    breaker_seconds: float = 5.0
    error_value: float | None = None
    logs_requests: bool = False
    dump: RolloutDump | None = None

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise OptionError(
                    f"{{{name}}} must be above 0 and finite, found {{value}}", value=value
                )
        if self.breaker_failures < 0:
            raise OptionError("{breaker_failures} must be 0 or more")
        if not self.batch_wait >= 0:
            raise OptionError("{batch_wait} must be 0 or more")
        if self.error_value is not None and not math.isfinite(self.error_value):
            raise OptionError(
                "{error_value} must be a finite number, found {value}", value=self.error_value
            )
        if self.token is not None and not self.token.isascii():
            raise UsageError(
                "the token must consist of ASCII characters, because clients encode others "
                "differently"
            )
