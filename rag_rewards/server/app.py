"""The routes: POST /score, POST /openrlhf, GET /health, /metrics, /status, and a page for people.

Bodies are decoded by msgspec straight into rollouts; FastAPI keeps the routes and their
documentation. Nothing in a request chooses a file, a module, a URL or a template.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec

from rag_rewards.blueprints import Scored
from rag_rewards.compose import Batch
from rag_rewards.errors import DataError, MissingExtraError, RolloutError, RowError
from rag_rewards.grading import Grader
from rag_rewards.rollout import Rollout, Score, row_error
from rag_rewards.server import openrlhf
from rag_rewards.server.batching import INLINE_BYTES, Batcher
from rag_rewards.server.guard import Guard, TooLarge, body_of
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.telemetry import Circuit, Telemetry
from rag_rewards.version import __version__

try:
    from fastapi import FastAPI, Request, Response
except ImportError as error:
    raise MissingExtraError(error.name or "fastapi", extra="server") from None

Handler = Callable[[bytes], Awaitable[bytes]]


class ScoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /score. `recipe`, where given, must be the one that is served."""

    rollouts: list[Rollout]
    recipe: str | None = None


class Refusal(Exception):
    """An answer that is not 200."""

    def __init__(self, status: int, kind: str, message: str, path: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"type": kind, "message": message, "path": path}}


_ENCODE = msgspec.json.Encoder().encode


class RewardServer:
    """One recipe behind its routes. `load` makes the grader, in the background, when serving
    begins; until then /health says so."""

    def __init__(
        self, load: Callable[[], Grader], components: Sequence[str], options: ServerOptions
    ) -> None:
        self.options = options
        self.telemetry = Telemetry(components, Circuit(options.error_share))
        self.components = tuple(components)
        self.batcher: Batcher | None = None
        self.grader: Grader | None = None
        self.fault = ""
        self._load = load
        self._rows = msgspec.json.Decoder(ScoreRequest)
        self._samples = msgspec.json.Decoder(openrlhf.Request)

    async def start(self) -> None:
        """Load what the recipe needs. What fails is told by /health, and raised."""
        try:
            grader = await asyncio.to_thread(self._load)
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"
            raise
        options = self.options
        self.batcher = Batcher(
            grader,
            self.telemetry,
            wait=options.batch_wait,
            rows=options.batch_rows,
            in_flight=options.in_flight,
        )
        self.grader = grader
        self.signature = grader.signature

    # --- routes ------------------------------------------------------------------------------

    async def score(self, body: bytes) -> bytes:
        """Scores of whole rows. Rows that cannot be scored have their error in their place."""
        asked = self._decoded(self._rows, body)
        grader, batcher = self._ready()
        if asked.recipe not in (None, grader.reward.name):
            message = f"this server scores {grader.reward.name!r}, not {asked.recipe!r}"
            raise Refusal(404, "UnknownRecipeError", message, "recipe")
        self._limit(len(asked.rollouts), "rollouts")
        groups = Batch(asked.rollouts).groups
        results = await batcher.score(asked.rollouts, groups)
        scores = [_told(result) for result in results]
        return _ENCODE({"scores": scores, "signature": self.signature})

    async def openrlhf(self, body: bytes) -> bytes:
        """Rewards in the shape that OpenRLHF reads."""
        asked = self._decoded(self._samples, body)
        grader, batcher = self._ready()
        if grader.scope == "group":
            message = (
                f"{grader.reward.name} compares the rollouts of a group, and OpenRLHF sends them "
                "one by one: use the agent executor (--train.agent_func_path)"
            )
            raise Refusal(409, "GroupError", message)
        self._limit(len(asked.query), "query")
        try:
            results = await self._samples_scored(batcher, openrlhf.rollouts_of(asked))
            answer = openrlhf.answer_of(results, self.components, self.options.error_value)
        except RolloutError as error:
            status = 422 if isinstance(error, (DataError, RowError)) else 503
            raise Refusal(status, type(error).__name__, str(error), error.path) from None
        substituted = sum(isinstance(result, RolloutError) for result in results)
        self.telemetry.substituted.inc(substituted)
        # NaN is what Python's own reader, the client's, understands of a missing number.
        return json.dumps(msgspec.structs.asdict(answer)).encode()

    async def _samples_scored(
        self, batcher: Batcher, read: Sequence[Rollout | RolloutError]
    ) -> list[Scored]:
        good = [rollout for rollout in read if isinstance(rollout, Rollout)]
        scored = iter(await batcher.score(good, [[i] for i in range(len(good))]))
        bad = [error for error in read if isinstance(error, RolloutError)]
        self.telemetry.told(bad)
        return [next(scored) if isinstance(row, Rollout) else row for row in read]

    def health(self) -> tuple[int, dict[str, Any]]:
        """200 when ready to score, 503 with the reason while it is not."""
        if self.fault:
            return 503, {"ready": False, "reason": self.fault}
        if self.grader is None:
            return 503, {"ready": False, "reason": "loading"}
        if self.telemetry.circuit.open:
            return 503, {"ready": False, "reason": self.telemetry.circuit.cause}
        return 200, {"ready": True, "recipe": self.grader.reward.name}

    def status(self) -> dict[str, Any]:
        """What is loaded and how it goes."""
        grader = self.grader
        loaded = {
            "recipe": grader.reward.name if grader else None,
            "equation": grader.reward.equation if grader else None,
            "models": grader.fingerprints if grader and grader.asks else {},
            "signature": self.signature if grader else None,
            "version": __version__,
        }
        code, health = self.health()
        return {"health": health | {"status": code}, "loaded": loaded, **self.telemetry.status()}

    # --- steps -------------------------------------------------------------------------------

    def _ready(self) -> tuple[Grader, Batcher]:
        if self.grader is None or self.batcher is None:
            raise Refusal(503, "NotReady", self.fault or "loading")
        return self.grader, self.batcher

    def _decoded(self, decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            fault = row_error(error)
            raise Refusal(422, "RowError", fault.message, fault.path) from None
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Refusal(400, "RowError", f"not JSON: {error}") from None

    def _limit(self, rows: int, path: str) -> None:
        if rows > self.options.max_rows:
            message = f"at most {self.options.max_rows:,} rows a request, found {rows:,}"
            raise Refusal(413, "TooLarge", message, path)

    async def answer(self, request: Request, handler: Handler) -> Response:
        """Read the body, handle it within the deadline, say what went wrong."""
        try:
            body = await body_of(request.receive, self.options.max_body)
            work = handler(body)
            if len(body) <= INLINE_BYTES and not (self.grader and self.grader.asks):
                return _json(await work)  # rules: done before anyone could go
            return _json(await self._while_wanted(request, work))
        except TooLarge as error:
            return _json(_ENCODE(Refusal(413, "TooLarge", str(error)).body), 413)
        except Refusal as refusal:
            return _json(_ENCODE(refusal.body), refusal.status)
        except asyncio.TimeoutError:
            late = Refusal(504, "Deadline", f"no score within {self.options.deadline:g} seconds")
            return _json(_ENCODE(late.body), 504)
        except RolloutError as error:  # a model that failed as a whole
            failed = Refusal(503, type(error).__name__, str(error))
            return _json(_ENCODE(failed.body), 503)

    async def _while_wanted(self, request: Request, work: Awaitable[bytes]) -> bytes:
        """The result, unless the deadline passes or the client goes away."""
        scoring = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            done, _ = await asyncio.wait(
                (scoring, gone),
                timeout=self.options.deadline,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            gone.cancel()
        if scoring in done:
            return scoring.result()
        scoring.cancel()
        if done:
            self.telemetry.gone.inc()
            raise Refusal(499, "ClientGone", "the client did not wait")
        raise asyncio.TimeoutError


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _told(result: Scored) -> dict[str, Any]:
    if isinstance(result, Score):
        return {
            "reward": result.value,
            "components": result.components,
            "correct": result.correct,
            "details": result.details,
            "error": None,
        }
    error = {"type": type(result).__name__, "message": result.message, "path": result.path}
    return {"reward": None, "components": {}, "correct": None, "details": {}, "error": error}


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


def build(server: RewardServer) -> Any:
    """The ASGI application of a server, guarded."""
    from contextlib import asynccontextmanager

    from rag_rewards.server.documentation import HEALTH, OPENRLHF, SCORE, described

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        loading = asyncio.ensure_future(server.start())
        loading.add_done_callback(_said)
        yield
        loading.cancel()

    api = FastAPI(
        title="rag-rewards",
        version=__version__,
        description="Rewards for retrieval-augmented generators.",
        lifespan=lifespan,
    )

    @api.post("/score", openapi_extra=SCORE)
    async def score(request: Request) -> Response:
        """Score rollouts. Rollouts of one group belong into one request."""
        return await server.answer(request, server.score)

    @api.post("/openrlhf", openapi_extra=OPENRLHF)
    async def openrlhf(request: Request) -> Response:
        """OpenRLHF's remote reward protocol."""
        return await server.answer(request, server.openrlhf)

    @api.get("/health", openapi_extra=HEALTH)
    async def health() -> Response:
        """Whether it is ready to score."""
        code, body = server.health()
        return _json(_ENCODE(body), code)

    @api.get("/metrics")
    async def metrics() -> Response:
        """Counters as Prometheus reads them."""
        return Response(server.telemetry.exposition(), media_type="text/plain; version=0.0.4")

    @api.get("/status")
    async def status() -> Response:
        """What the page shows, as data."""
        return _json(_ENCODE(server.status()))

    @api.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(_page(), media_type="text/html", headers=_PAGE_HEADERS)

    schema = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            described(schema())
        return schema()

    api.openapi = openapi  # type: ignore[method-assign]
    return Guard(api, server.telemetry, token=server.options.token)


_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


@lru_cache(maxsize=1)
def _page() -> bytes:
    return (files("rag_rewards.server") / "status.html").read_bytes()


def _said(loading: asyncio.Future[None]) -> None:
    """A load that failed is logged; the server stays up and says so."""
    from rag_rewards.server.telemetry import log

    if not loading.cancelled() and (error := loading.exception()) is not None:
        log.error("not ready: %s: %s", type(error).__name__, error)
