"""Errors of HTTP requests: their status, their body, and the time after which to try again."""

from __future__ import annotations

import math
from typing import Any

from rag_rewards.server.request_ids import current_request_id


class RequestError(Exception):
    """A request that is answered with an HTTP error.

    retry_after  seconds after which the same request can succeed; None if it never can
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        path: str = "",
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.path = status, kind, path
        self.retry_after = retry_after

    @property
    def body(self) -> dict[str, Any]:
        """The body of the response, with the id of the current request."""
        error = {"type": self.kind, "message": str(self), "path": self.path}
        return {"error": error | {"request_id": current_request_id()}}

    @property
    def headers(self) -> dict[str, str]:
        """Further headers of the response: Retry-After in whole seconds, at least one."""
        if self.retry_after is None:
            return {}
        return {"Retry-After": str(max(math.ceil(self.retry_after), 1))}
