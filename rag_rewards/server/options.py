"""What a server is told when it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rag_rewards.errors import UsageError


@dataclass(frozen=True)
class ServerOptions:
    """Limits and habits of a server.

    deadline      seconds until a request is answered with 504
    batch_wait    seconds that a request waits for others before a model is asked
    max_waiting   rollouts that may wait for a model; 503 beyond
    error_value   what POST /openrlhf answers for a rollout without a score; None: an error
    error_share   share of rollouts without a score beyond which /health is 503
    """

    token: str | None = None
    max_body: int = 16 << 20
    max_rows: int = 1024
    deadline: float = 120.0
    batch_wait: float = 0.005
    batch_rows: int = 256
    in_flight: int = 1
    max_waiting: int = 16_384
    error_value: float | None = None
    error_share: float = 0.5

    def __post_init__(self) -> None:
        for name in ("max_body", "max_rows", "deadline", "batch_rows", "in_flight"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} is above 0, found {getattr(self, name)}")
        if not self.batch_wait >= 0:
            raise UsageError(f"batch_wait is 0 or more, found {self.batch_wait}")
        if self.error_value is not None and not math.isfinite(self.error_value):
            raise UsageError(f"error_value is a finite number, found {self.error_value}")
        if self.token is not None and not self.token.isascii():
            raise UsageError(
                "a token has ASCII characters alone: clients encode others in several ways"
            )
