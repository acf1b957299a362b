"""Parts of HTTP responses that all servers have in common: error messages and Retry-After."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rag_rewards.errors import BackendError

if TYPE_CHECKING:
    import httpx

UNDECODABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
"""Exceptions of msgspec for bytes that are not JSON, or that nest too deeply."""


class HttpError(BackendError):
    """A failed request. `status` is the status code of the last response, None without one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ResponseTooLarge(Exception):
    """A response body that exceeds its limit."""


async def request_within(
    client: httpx.AsyncClient, limit: int, method: str, url: str | httpx.URL, **options: Any
) -> httpx.Response:
    """Send a request and return the response with its body.

    Raises ResponseTooLarge as soon as the decompressed body exceeds `limit` bytes: a few kB can
    expand to many GB.
    """
    import httpx

    body = bytearray()
    async with client.stream(method, url, **options) as response:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > limit:
                raise ResponseTooLarge(f"the response has more than {limit:,} bytes")
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        return httpx.Response(
            response.status_code, headers=headers, content=bytes(body), request=response.request
        )


def get_within(limit: int, seconds: float, url: str, headers: dict[str, str]) -> httpx.Response:
    """Send GET and return the response with its body, for callers without an event loop.

    Raises ResponseTooLarge as soon as the decompressed body exceeds `limit` bytes, and
    httpx.ReadTimeout if it is not complete after `seconds` and the time of one read.
    """
    import httpx

    body, end = bytearray(), time.monotonic() + seconds
    with httpx.stream("GET", url, headers=headers, timeout=seconds) as response:
        for part in response.iter_bytes():
            body += part
            if len(body) > limit:
                raise ResponseTooLarge(f"the response has more than {limit:,} bytes")
            if time.monotonic() > end:  # the timeout of httpx applies to each read
                raise httpx.ReadTimeout(f"no complete response within {seconds:g} s")
        return httpx.Response(response.status_code, content=bytes(body), request=response.request)


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
