"""Checks in front of the routes: the token, the size of bodies, and the duration of requests."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from rag_rewards.server.telemetry import Telemetry

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

OPEN_ROUTES = frozenset({"/health"})
"""Routes without a token check, because monitoring systems should not have the token."""
NAMED_ROUTES = frozenset(
    "/score /openrlhf /models /entailment /similarity /health /metrics /status / /docs "
    "/openapi.json".split()
)
"""Routes that metrics count by name. Other routes are counted together as `other`."""


class TooLarge(Exception):
    """A request body that exceeds the limit."""


class Guard:
    """An ASGI application that checks the token of requests and records their duration.

    A client sends the token as `Authorization: Bearer TOKEN`, or as the password of Basic
    authentication (`http://user:TOKEN@host/…`). The comparison takes constant time.
    """

    def __init__(self, app: Any, telemetry: Telemetry, *, token: str | None) -> None:
        self.app, self.telemetry = app, telemetry
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def send_and_watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if self._is_authorized(scope):
                await self.app(scope, receive, send_and_watch)
            else:
                await _refuse(send_and_watch)
        finally:
            route = scope["path"] if scope["path"] in NAMED_ROUTES else "other"
            self.telemetry.record_request(route, status, time.perf_counter() - started)

    def _is_authorized(self, scope: Message) -> bool:
        if self.token is None or scope["path"] in OPEN_ROUTES:
            return True
        for name, value in scope["headers"]:
            if name == b"authorization":
                return hmac.compare_digest(token_of(value), self.token)
        return False


def token_of(header: bytes) -> bytes:
    """Return the token in an Authorization header; b"" if there is none.

    >>> token_of(b"Bearer secret"), token_of(b"Basic " + base64.b64encode(b"any:secret"))
    (b'secret', b'secret')
    """
    scheme, _, value = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip()
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


async def _refuse(send: Send) -> None:
    body = b'{"error":{"type":"Unauthorized","message":"missing or wrong token","path":""}}'
    headers = [
        (b"content-type", b"application/json"),
        (b"www-authenticate", b'Basic realm="rag-rewards"'),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def body_of(receive: Receive, limit: int) -> bytes:
    """Return the body of a request. TooLarge is raised as soon as it exceeds the limit."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise TooLarge(f"the body has more than {limit:,} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)
