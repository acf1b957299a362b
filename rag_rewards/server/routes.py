"""The routes of the server, and the ASGI application that answers their requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files

import msgspec

from rag_rewards.errors import BackendError
from rag_rewards.server import documentation
from rag_rewards.server import request_bodies as bodies
from rag_rewards.server.access import refusal
from rag_rewards.server.admission import ClientGone, Message, Receive
from rag_rewards.server.app import RewardServer
from rag_rewards.server.documentation import Route
from rag_rewards.server.logs import log, request_id_of, set_request_id
from rag_rewards.server.request_errors import RequestError
from rag_rewards.training import openrlhf

Send = Callable[[Message], Awaitable[None]]
METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())
_ENCODE = msgspec.json.Encoder().encode
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Reply:
    """The response to a request."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"


async def _models(server: RewardServer) -> Reply:
    """Return the entailment and the similarity model of the server."""
    return Reply(_ENCODE(await server.describe_models()))


async def _health(server: RewardServer) -> Reply:
    """Return whether the server can score."""
    code, body = server.health()
    return Reply(_ENCODE(body), code)


async def _metrics(server: RewardServer) -> Reply:
    """Return the metrics in the text format of Prometheus."""
    media_type = "text/plain; version=0.0.4; charset=utf-8"
    return Reply(server.telemetry.exposition(), media_type=media_type)


async def _status(server: RewardServer) -> Reply:
    """Return the data of the status page."""
    return Reply(_ENCODE(server.status()))


async def _openapi(_: RewardServer) -> Reply:
    """Return the schemas of the routes."""
    return Reply(_ENCODE(documentation.schema(ROUTES)))


async def _documentation_page(_: RewardServer) -> Reply:
    """Show the routes with examples."""
    page = documentation.page(documentation.schema(ROUTES))
    return Reply(page, headers=_PAGE_HEADERS, media_type="text/html; charset=utf-8")


async def _status_page(_: RewardServer) -> Reply:
    """Show the status of the server."""
    page = (files("rag_rewards.server") / "status.html").read_bytes()
    return Reply(page, headers=_PAGE_HEADERS, media_type="text/html; charset=utf-8")


ROUTES = (
    Route("POST", "/score", RewardServer.score_rows, bodies.ScoreRequest, bodies.ScoreResponse),
    Route(
        "POST",
        "/openrlhf",
        RewardServer.score_samples,
        openrlhf.SampleRequest,
        openrlhf.SampleResponse,
        (409,),
    ),
    Route("GET", "/models", _models, None, bodies.ModelsResponse, (503,)),
    Route(
        "POST",
        "/entailment",
        RewardServer.entail,
        bodies.EntailmentRequest,
        bodies.EntailmentResponse,
        (404, 424),
    ),
    Route(
        "POST",
        "/similarity",
        RewardServer.compare,
        bodies.SimilarityRequest,
        bodies.SimilarityResponse,
        (404, 424),
    ),
    Route("GET", "/health", _health, None, bodies.HealthResponse, (503,)),
    Route("GET", "/metrics", _metrics),
    Route("GET", "/status", _status),
    Route("GET", "/openapi.json", _openapi),
    Route("GET", "/docs", _documentation_page),
    Route("GET", "/", _status_page),
)
_BY_PATH = {route.path: route for route in ROUTES}
NAMED_ROUTES = frozenset(_BY_PATH)
"""Routes that metrics count by name. Other routes are counted together as `other`."""


class Application:
    """The ASGI application of a server.

    It checks the access of each request, calls the handler of its route, converts errors to
    responses, and records the duration. Each response has the id of its request in the header
    X-Request-Id.
    """

    def __init__(self, server: RewardServer) -> None:
        self.server, self._telemetry = server, server.telemetry

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._respond(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close"})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Load the recipe in the background, and release its models at the end."""
        await receive()
        loading = asyncio.ensure_future(self.server.start())
        loading.add_done_callback(_log_failure)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        loading.cancel()
        await self.server.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _respond(self, scope: Message, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = request_id_of(headers.get(b"x-request-id"))
        set_request_id(request_id)
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        route = _BY_PATH.get(scope["path"].rstrip("/") or "/")
        name = "other" if route is None else route.path
        code, telemetry = 500, self._telemetry
        telemetry.in_flight.inc()
        with telemetry.tracing.request(method, name, headers, request_id) as span:
            try:
                reply = await self._reply(route, scope, headers, receive)
                code = reply.status
                await _send(send, reply, request_id)
            finally:
                telemetry.in_flight.dec()
                seconds = time.perf_counter() - started
                telemetry.record_request(name, code, seconds)
                telemetry.tracing.end_request(span, code)
                if self.server.options.logs_requests:
                    _log_request(method, name, code, seconds)

    async def _reply(
        self, route: Route | None, scope: Message, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Reply:
        try:
            token = self.server.options.token
            if error := refusal(scope["method"], scope["path"], headers, token):
                raise error
            if route is None:
                raise RequestError(404, "NotFound", "no such route: GET /docs lists the routes")
            if route.method != scope["method"]:
                allowed = {"Allow": route.method}
                if route.path == "/":  # a trainer whose URL has no route
                    return Reply(_ENCODE({"error": _route_hint(scope, headers)}), 405, allowed)
                message = f"the method of {route.path} is {route.method}"
                raise RequestError(405, "MethodNotAllowed", message, headers=allowed)
            if route.request is None:
                reply: Reply = await route.handler(self.server)
                return reply
            handler = partial(route.handler, self.server)
            return Reply(await self.server.admission.answer(receive, handler))
        except Exception as error:
            failure = self._failure(error)
            self._telemetry.record_request_error(failure.kind)
            if failure.status != 500:  # the log has its traceback
                failure.log()
            return Reply(_ENCODE(failure.body), failure.status, failure.headers)

    def _failure(self, error: Exception) -> RequestError:
        """Return the error for the client. Details of unexpected errors are only logged."""
        if isinstance(error, RequestError):
            return error
        if isinstance(error, ClientGone):
            self._telemetry.disconnected.inc()
            return RequestError(499, "ClientGone", "the client disconnected")
        if isinstance(error, asyncio.TimeoutError):
            timeout = BackendError(f"no score within {self.server.options.deadline:g} seconds")
            self._telemetry.record([timeout])
            return RequestError(504, "Deadline", timeout.message)
        log.exception("unexpected error in a request", exc_info=error)
        return RequestError(500, type(error).__name__, "unexpected error: see the server's log")


def _route_hint(scope: Message, headers: Mapping[bytes, bytes]) -> str:
    url = f"{scope['scheme']}://{headers.get(b'host', b'').decode('latin-1')}/"
    return f"POST rollouts to {url}score, or to {url}openrlhf for OpenRLHF"


async def _send(send: Send, reply: Reply, request_id: str) -> None:
    headers = [
        (b"content-length", str(len(reply.body)).encode()),
        (b"content-type", reply.media_type.encode()),
        (b"x-request-id", request_id.encode()),
        *((name.lower().encode(), value.encode()) for name, value in reply.headers.items()),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def _log_request(method: str, route: str, code: int, seconds: float) -> None:
    """Log a request with its route. Its path is not logged, because it is untrusted."""
    fields = {"method": method, "route": route, "status": code, "seconds": round(seconds, 6)}
    message = "%s %s: status %d in %.4f s"
    log.info(message, method, route, code, seconds, extra={"fields": fields})


def _log_failure(loading: asyncio.Future[None]) -> None:
    """Log an error of the background loading."""
    if not loading.cancelled() and (error := loading.exception()) is not None:
        log.error("not ready: %s: %s", type(error).__name__, error)
