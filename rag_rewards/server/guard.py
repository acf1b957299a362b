"""Checks in front of the routes: token, origin and host, size of bodies, duration of requests."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec

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

    Web pages of other sites cannot use a server that their visitor can reach: a POST that a browser
    sends for another site is refused. Without a token, a request for a domain name is refused,
    because a page can let its own domain point to this server (DNS rebinding).
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
            if not self._is_authorized(scope):
                await _refuse(send_and_watch)
            elif message := self._foreign_origin(scope):
                await _send_error(send_and_watch, 403, "Forbidden", message)
            else:
                await self.app(scope, receive, send_and_watch)
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

    def _foreign_origin(self, scope: Message) -> str:
        """Return why a request may come from a web page of another site; "" if it does not."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if self.token is None and scope["path"] not in OPEN_ROUTES and is_public_name(host):
            return (
                f"without a token, the server accepts only addresses and local names, not {host}: "
                "start it with --token-file"
            )
        if scope["method"] == "POST" and is_cross_site(
            headers.get(b"sec-fetch-site"), headers.get(b"origin"), host
        ):
            return "requests from web pages of other sites are not accepted"
        return ""


def is_public_name(host: str) -> bool:
    """Return whether a Host header contains a domain name that anyone can register.

    >>> is_public_name("example.com:8000")
    True
    >>> any(map(is_public_name, ["localhost:8000", "127.0.0.1", "[::1]:80", "rewards", "a.local"]))
    False
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return True
    try:
        ip_address(name)
    except ValueError:
        return "." in name and not name.endswith(_LOCAL_DOMAINS)
    return False


_LOCAL_DOMAINS = (".localhost", ".local", ".internal", ".lan", ".test", ".home.arpa")


def is_cross_site(fetch_site: str | None, origin: str | None, host: str) -> bool:
    """Return whether a browser sends a request for a page of another site than `host`.

    Programs other than browsers send neither of the two headers.

    >>> is_cross_site(None, None, "a:80"), is_cross_site(None, "http://a:80", "a:80")
    (False, False)
    >>> is_cross_site("cross-site", None, "a:80"), is_cross_site(None, "null", "a:80")
    (True, True)
    """
    if fetch_site is not None:
        return fetch_site not in ("same-origin", "none")
    return origin is not None and origin.partition("://")[2] != host


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
    authenticate = (b"www-authenticate", b'Basic realm="rag-rewards"')
    await _send_error(send, 401, "Unauthorized", "missing or wrong token", authenticate)


async def _send_error(
    send: Send, status: int, kind: str, message: str, *headers: tuple[bytes, bytes]
) -> None:
    body = msgspec.json.encode({"error": {"type": kind, "message": message, "path": ""}})
    fixed = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    start = {"type": "http.response.start", "status": status, "headers": [*fixed, *headers]}
    await send(start)
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
