"""What stands before the routes: the token, the size of bodies, and the clock."""

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

OPEN = frozenset({"/health"})
"""Routes that need no token: what watches a server must not know its secret."""
KNOWN = frozenset("/score /openrlhf /health /metrics /status / /docs /openapi.json".split())
"""Routes that are counted by name; others are counted together."""


class TooLarge(Exception):
    """A body beyond the limit."""


class Guard:
    """An ASGI application that lets requests with the right token through, and times them.

    The token comes as `Authorization: Bearer TOKEN`, or as the password of Basic authentication
    (`http://user:TOKEN@host/…`); it is compared in constant time.
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

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if self._admitted(scope):
                await self.app(scope, receive, watched)
            else:
                await _refuse(watched)
        finally:
            route = scope["path"] if scope["path"] in KNOWN else "other"
            self.telemetry.answered(route, status, time.perf_counter() - started)

    def _admitted(self, scope: Message) -> bool:
        if self.token is None or scope["path"] in OPEN:
            return True
        for name, value in scope["headers"]:
            if name == b"authorization":
                return hmac.compare_digest(token_of(value), self.token)
        return False


def token_of(header: bytes) -> bytes:
    """The token in an Authorization header; b"" where there is none.

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
    body = b'{"error":{"type":"Unauthorized","message":"a token is needed","path":""}}'
    headers = [
        (b"content-type", b"application/json"),
        (b"www-authenticate", b'Basic realm="rag-rewards"'),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def body_of(receive: Receive, limit: int) -> bytes:
    """A request's body. TooLarge as soon as it is beyond the limit."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise TooLarge(f"a body of at most {limit:,} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)
