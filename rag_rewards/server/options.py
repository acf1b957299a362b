"""What a server is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerOptions:
    """Limits and habits of a server.

    deadline      seconds until a request is answered with 504
    batch_wait    seconds that a request waits for others before a model is asked
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
    error_value: float | None = None
    error_share: float = 0.5
