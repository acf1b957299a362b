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

from rag_rewards.server.request_errors import RequestError
from rag_rewards.server.request_ids import request_id_of, set_request_id
from rag_rewards.server.telemetry import Telemetry, log, log_refusal

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


METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())


class TooLarge(Exception):
    """A request body that exceeds the limit."""


class ClientGone(Exception):
    """A client that disconnects before it gets a response."""


class Guard:
    """An ASGI application that checks the token of requests and records their duration.

    A client sends the token as `Authorization: Bearer TOKEN`, or as the password of Basic
    authentication (`http://user:TOKEN@host/…`). The comparison takes constant time.

    Web pages of other sites cannot use a server that their visitor can reach: a POST that a browser
    sends for another site is refused. Without a token, a request for a domain name is refused,
    because a page can let its own domain point to this server (DNS rebinding), and a POST must
    declare JSON, because a page can send other types without permission of the server.

    Each response has the id of its request in the header X-Request-Id.
    """

    def __init__(
        self, app: Any, telemetry: Telemetry, *, token: str | None, logs_requests: bool = False
    ) -> None:
        self.app, self.telemetry = app, telemetry
        self.logs_requests = logs_requests
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = request_id_of(headers.get(b"x-request-id"))
        set_request_id(request_id)
        id_header = (b"x-request-id", request_id.encode())

        async def send_and_watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], id_header]
            await send(message)

        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        route = scope["path"] if scope["path"] in NAMED_ROUTES else "other"
        tracing = self.telemetry.tracing
        self.telemetry.in_flight.inc()
        with tracing.request(method, route, headers, request_id) as span:
            try:
                refusal = self._refusal(scope, headers)
                if refusal is None:
                    await self.app(scope, receive, send_and_watch)
                else:
                    self.telemetry.record_request_error(refusal.kind)
                    log_refusal(refusal)
                    await _send_error(send_and_watch, refusal)
            finally:
                self.telemetry.in_flight.dec()
                seconds = time.perf_counter() - started
                self.telemetry.record_request(route, status, seconds)
                tracing.end_request(span, status)
                if self.logs_requests:
                    log_request(method, route, status, seconds)

    def _refusal(self, scope: Message, headers: dict[bytes, bytes]) -> RequestError | None:
        """Return why a request is refused before its body is read; None if it is accepted."""
        if not self._is_authorized(scope):
            return RequestError(401, "Unauthorized", "missing or wrong token")
        if message := self._foreign_origin(scope, headers):
            return RequestError(403, "Forbidden", message)
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        if self.token is None and scope["method"] == "POST" and not is_json(content_type):
            problem = f"found {content_type[:80]!r}" if content_type else "it is missing"
            message = f"the header Content-Type must be application/json, {problem}"
            return RequestError(415, "UnsupportedMediaType", message)
        return None

    def _is_authorized(self, scope: Message) -> bool:
        if self.token is None or scope["path"] in OPEN_ROUTES:
            return True
        for name, value in scope["headers"]:
            if name == b"authorization":
                return hmac.compare_digest(token_of(value), self.token)
        return False

    def _foreign_origin(self, scope: Message, raw_headers: dict[bytes, bytes]) -> str:
        """Return why a request may come from a web page of another site; "" if it does not."""
        headers = {name: value.decode("latin-1") for name, value in raw_headers.items()}
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


def log_request(method: str, route: str, status: int, seconds: float) -> None:
    """Log a request with its route. Its path is not logged, because it is untrusted."""
    fields = {"method": method, "route": route, "status": status, "seconds": round(seconds, 6)}
    message = "%s %s: status %d in %.4f s"
    log.info(message, method, route, status, seconds, extra={"fields": fields})


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


def is_json(content_type: str) -> bool:
    """Return whether a Content-Type header declares JSON.

    >>> is_json("application/json; charset=utf-8"), is_json("text/plain"), is_json("")
    (True, False, False)
    """
    return content_type.partition(";")[0].strip().lower() == "application/json"


async def _send_error(send: Send, error: RequestError) -> None:
    body = msgspec.json.encode(error.body)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if error.status == 401:
        headers.append((b"www-authenticate", b'Basic realm="rag-rewards"'))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def body_of(receive: Receive, limit: int, count: Callable[[int], None]) -> bytes:
    """Return the body of a request.

    Raises TooLarge as soon as the body exceeds the limit, and ClientGone if its end is missing.
    `count` is called with the size after each part, and can raise as well.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise TooLarge(f"the body has more than {limit:,} bytes")
        count(size)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)
