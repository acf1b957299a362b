"""Errors of HTTP requests: their status, their body, and the time after which to try again."""

from __future__ import annotations

import math

import msgspec

from rag_rewards.server.logs import current_request_id, log, short_message

BUSY_SECONDS = 1.0
"""Time after which a client of a busy server can try again."""


class ErrorDetails(msgspec.Struct):
    """What is wrong in a request, where, and the id of the request."""

    type: str
    message: str
    path: str
    request_id: str


class ErrorResponse(msgspec.Struct):
    """The body of a response to a request that failed."""

    error: ErrorDetails


class RequestError(Exception):
    """A request that is answered with an HTTP error.

    retry_after  seconds after which the same request can succeed; None if it never can
    headers      further headers of the response
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        path: str = "",
        *,
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.path = status, kind, path
        self.headers = headers or {}
        if retry_after is not None:
            self.headers = {"Retry-After": str(max(math.ceil(retry_after), 1))}

    @property
    def body(self) -> ErrorResponse:
        """The body of the response, with the id of the current request."""
        return ErrorResponse(ErrorDetails(self.kind, str(self), self.path, current_request_id()))

    def log(self) -> None:
        """Log why the request is answered with an error. The client sees the same text."""
        reason = f"{self.path}: {short_message(self)}" if self.path else short_message(self)
        fields = {"status": self.status, "type": self.kind, "path": self.path}
        message = "request refused with status %d, %s: %s"
        log.warning(message, self.status, self.kind, reason, extra={"fields": fields})


def busy(reason: str) -> RequestError:
    """Return the error of a request that the server cannot accept at this time."""
    return RequestError(503, "Busy", reason, retry_after=BUSY_SECONDS)
