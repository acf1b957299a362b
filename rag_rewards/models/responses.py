"""Responses of all servers: their bodies, their errors, and the times that they request."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from rag_rewards.errors import BackendError

UNDECODABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
"""Exceptions of msgspec for bytes that are not JSON, or that nest too deeply."""


class HttpError(BackendError):
    """A failed request.

    status       the status code of the last response, None without one
    affects_all  whether every other request would fail in the same way
    """

    def __init__(
        self, message: str, status: int | None = None, *, affects_all: bool = False
    ) -> None:
        super().__init__(message)
        self.status, self.affects_all = status, affects_all


class TemporaryFailure(Exception):
    """A failed attempt. Another one can succeed, after `retry_after` seconds or more."""

    def __init__(
        self, error: HttpError, retry_after: float = 0.0, *, is_timeout: bool = False
    ) -> None:
        super().__init__(str(error))
        self.error, self.retry_after, self.is_timeout = error, retry_after, is_timeout


@dataclass(frozen=True)
class Response:
    """The status of a response, the value of its header Retry-After, and its body."""

    status: int
    retry_after: str | None
    content: bytes


class ResponseTooLarge(Exception):
    """A response body that exceeds its limit."""


async def receive(connection: Any, limit: int, method: str, url: str, **options: Any) -> Response:
    """Send a request and return its response.

    Raises ResponseTooLarge as soon as the decompressed body exceeds `limit` bytes: a few kB can
    expand to many GB.
    """
    body = bytearray()
    async with connection.stream(method, url, **options) as response:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > limit:
                raise ResponseTooLarge(f"the response has more than {limit:,} bytes")
        return Response(response.status_code, response.headers.get("retry-after"), bytes(body))


def is_temporary(status: int) -> bool:
    """Return whether a request with this status code can succeed later."""
    return status in (408, 425, 429) or status >= 500


def retry_after_seconds(value: str | None) -> float:
    """Return the seconds to wait of a Retry-After header, a number or a date.

    Returns 0 without the header and for any other value.

    >>> retry_after_seconds("2.5"), retry_after_seconds("soon"), retry_after_seconds(None)
    (2.5, 0.0, 0.0)
    """
    if value is None:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
            if date.tzinfo is None:
                date = date.replace(tzinfo=timezone.utc)
            seconds = date.timestamp() - time.time()
        except (TypeError, ValueError, IndexError, OverflowError):
            return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def error_message(content: bytes) -> str:
    """Return the message of an error response: of OpenAI, of FastAPI, or the whole text.

    >>> error_message(b'{"error": {"message": "too long", "code": 400}}')
    'too long'
    """
    with suppress(*UNDECODABLE):
        body = msgspec.json.decode(content)
        for key in ("error", "message", "detail"):
            if isinstance(body, dict) and key in body:
                body = body[key]
        if isinstance(body, str):
            return body
    return content.decode("utf-8", "replace")
