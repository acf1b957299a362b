"""The application: its routes with their documentation, the status page, and the token check."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import Any

import msgspec

from rag_rewards import __version__
from rag_rewards.errors import needs_extra
from rag_rewards.server.app import RewardServer
from rag_rewards.server.guard import Guard
from rag_rewards.server.responder import json_response
from rag_rewards.server.telemetry import log

with needs_extra("server"):
    from fastapi import FastAPI, Request, Response

_ENCODE = msgspec.json.Encoder().encode


def build(server: RewardServer) -> Any:
    """Return the ASGI application of a server, with its token check."""
    from contextlib import asynccontextmanager

    from rag_rewards.server.documentation import (
        ENTAILMENT,
        HEALTH,
        MODELS,
        OPENRLHF,
        SCORE,
        SIMILARITY,
        add_row_schemas,
    )
    from rag_rewards.server.documentation_page import documentation_page

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        loading = asyncio.ensure_future(server.start())
        loading.add_done_callback(_log_failure)
        yield
        loading.cancel()
        await server.stop()

    api = FastAPI(
        title="rag-rewards",
        version=__version__,
        description="Rewards for retrieval-augmented generators.",
        lifespan=lifespan,
        docs_url=None,  # the pages of FastAPI load scripts from another server
        redoc_url=None,
    )

    status_page = (files("rag_rewards.server") / "status.html").read_bytes()

    @api.post("/score", openapi_extra=SCORE)
    async def score(request: Request) -> Response:
        """Score rollouts. A request contains all rollouts of a group."""
        return await server.responder.answer(request, server.score_rows)

    @api.post("/openrlhf", openapi_extra=OPENRLHF)
    async def openrlhf(request: Request) -> Response:
        """Score samples in the remote reward protocol of OpenRLHF."""
        return await server.responder.answer(request, server.score_samples)

    @api.get("/models", openapi_extra=MODELS)
    async def models() -> Response:
        """Return the entailment and the similarity model of the server."""
        return await server.describe_models()

    @api.post("/entailment", openapi_extra=ENTAILMENT)
    async def entailment(request: Request) -> Response:
        """Return the probability that each premise entails its hypothesis."""
        return await server.responder.answer(request, server.entail)

    @api.post("/similarity", openapi_extra=SIMILARITY)
    async def similarity(request: Request) -> Response:
        """Return the similarity of each text to its reference."""
        return await server.responder.answer(request, server.compare)

    @api.get("/health", openapi_extra=HEALTH)
    async def health() -> Response:
        """Return whether the server can score."""
        code, body = server.health()
        return json_response(_ENCODE(body), code)

    @api.get("/metrics")
    async def metrics() -> Response:
        """Return the metrics in the text format of Prometheus."""
        return Response(server.telemetry.exposition(), media_type="text/plain; version=0.0.4")

    @api.get("/status")
    async def status() -> Response:
        """Return the data of the status page."""
        return json_response(_ENCODE(server.status()))

    @api.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        page = documentation_page(api.openapi())
        return Response(page, media_type="text/html", headers=_PAGE_HEADERS)

    @api.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(status_page, media_type="text/html", headers=_PAGE_HEADERS)

    @api.post("/", include_in_schema=False)
    async def no_route(request: Request) -> Response:
        """Name the routes to a trainer whose URL has none."""
        url = str(request.base_url)
        message = f"POST rollouts to {url}score, or to {url}openrlhf for OpenRLHF"
        return Response(_ENCODE({"error": message}), 405, {"Allow": "GET"}, "application/json")

    schema = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            add_row_schemas(schema())
        return schema()

    api.openapi = openapi  # type: ignore[method-assign]
    options = server.options
    return Guard(api, server.telemetry, token=options.token, logs_requests=options.logs_requests)


_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


def _log_failure(loading: asyncio.Future[None]) -> None:
    """Log an error of the background loading."""
    if not loading.cancelled() and (error := loading.exception()) is not None:
        log.error("not ready: %s: %s", type(error).__name__, error)
