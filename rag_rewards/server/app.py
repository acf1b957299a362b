"""The routes: POST /score, POST /openrlhf, GET /health, /metrics, /status, and a page for people.

Bodies are decoded by msgspec straight into rollouts; FastAPI keeps the routes and their
documentation. Nothing in a request chooses a file, a module, a URL or a template.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import msgspec

from rag_rewards.errors import (
    BackendError,
    DataError,
    MissingExtraError,
    RolloutError,
    RowError,
    ScoringError,
)
from rag_rewards.groups import group_by_key
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows import row_error
from rag_rewards.scorer import Scorer
from rag_rewards.server import openrlhf
from rag_rewards.server.batching import INLINE_BYTES, Batcher
from rag_rewards.server.guard import Guard, TooLarge, body_of
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.telemetry import Circuit, Telemetry, log, shown
from rag_rewards.version import __version__

try:
    from fastapi import FastAPI, Request, Response
except ImportError as error:
    raise MissingExtraError(error.name or "fastapi", extra="server") from None

Handler = Callable[[bytes], Coroutine[Any, Any, bytes]]


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


_ROW_ERRORS = (DataError, RowError, ScoringError)  # sending the same row again gives the same error
_ENCODE = msgspec.json.Encoder().encode
RETRY_SECONDS = 5.0


@dataclass(frozen=True)
class Ready:
    """What a server that has loaded scores with."""

    scorer: Scorer
    batcher: Batcher
    signature: str


class RewardServer:
    """One recipe behind its routes. `load` makes the scorer, in the background, when serving
    begins; until then /health says so."""

    def __init__(
        self, load: Callable[[], Scorer], components: Sequence[str], options: ServerOptions
    ) -> None:
        self.options = options
        self.telemetry = Telemetry(components, Circuit(options.error_share))
        self.components = tuple(components)
        self.ready: Ready | None = None
        self.fault = ""
        self._load = load
        self._rows = msgspec.json.Decoder(ScoreRequest)
        self._samples = msgspec.json.Decoder(openrlhf.Request)

    async def start(self) -> None:
        """Load what the recipe needs. What fails is told by /health, and raised; a backend that
        does not answer yet is asked again."""
        while self.ready is None:
            try:
                scorer, signature = await asyncio.to_thread(self._made)
            except Exception as error:
                self.fault = f"{type(error).__name__}: {shown(error)}"
                if not isinstance(error, BackendError):
                    raise
                log.warning("not ready: %s", self.fault)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.ready, self.fault = Ready(scorer, self._batcher(scorer), signature), ""

    async def stop(self) -> None:
        """Let go of the models."""
        if self.ready is not None:
            await self.ready.scorer.aclose()

    def _made(self) -> tuple[Scorer, str]:
        scorer = self._load()
        return scorer, scorer.signature  # a server tells its fingerprint when it is asked

    def _batcher(self, scorer: Scorer) -> Batcher:
        options = self.options
        return Batcher(
            scorer,
            self.telemetry,
            wait=options.batch_wait,
            rows=options.batch_rows,
            in_flight=options.in_flight,
        )

    # --- routes ------------------------------------------------------------------------------

    async def rows(self, body: bytes) -> bytes:
        """Scores of whole rows. Rows that cannot be scored have their error in their place."""
        asked = self._decoded(self._rows, body)
        ready = self._ready()
        name = ready.scorer.reward.name
        if asked.recipe not in (None, name):
            message = f"this server scores {name!r}, not {asked.recipe!r}"
            raise Refusal(404, "UnknownRecipeError", message, "recipe")
        self._limit(len(asked.rollouts), "rollouts")
        groups = group_by_key(asked.rollouts)
        results = await ready.batcher.score(asked.rollouts, groups, len(body))
        scores = [_told(result) for result in results]
        return _ENCODE({"scores": scores, "signature": ready.signature})

    async def samples(self, body: bytes) -> bytes:
        """Rewards in the shape that OpenRLHF reads."""
        asked = self._decoded(self._samples, body)
        ready = self._ready()
        if why := openrlhf.refusal(ready.scorer.reward):
            raise Refusal(409, "GroupError", why)
        self._limit(len(asked.query), "query")
        try:
            results = await self._samples_scored(ready.batcher, asked, len(body))
            answer = openrlhf.answer_of(results, self.components, self.options.error_value)
        except RolloutError as error:
            status = 422 if isinstance(error, _ROW_ERRORS) else 503
            raise Refusal(status, type(error).__name__, shown(error), error.path) from None
        substituted = sum(isinstance(result, RolloutError) for result in results)
        self.telemetry.substituted.inc(substituted)
        # NaN is what Python's own reader, the client's, understands of a missing number.
        return json.dumps(msgspec.structs.asdict(answer)).encode()

    async def _samples_scored(
        self, batcher: Batcher, asked: openrlhf.Request, size: int
    ) -> list[ScoreOrError]:
        if size <= INLINE_BYTES:
            read = openrlhf.rollouts_of(asked)
        else:
            read = await asyncio.to_thread(openrlhf.rollouts_of, asked)
        good = [rollout for rollout in read if isinstance(rollout, Rollout)]
        scored = iter(await batcher.score(good, [[i] for i in range(len(good))], size))
        self.telemetry.told([error for error in read if isinstance(error, RolloutError)])
        return [next(scored) if isinstance(row, Rollout) else row for row in read]

    def health(self) -> tuple[int, dict[str, Any]]:
        """200 when ready to score, 503 with the reason while it is not.

        It needs no token, so that where there is one the reason is the kind of error alone.
        """
        circuit = self.telemetry.circuit
        if self.ready is not None and not circuit.open:
            return 200, {"ready": True, "recipe": self.ready.scorer.reward.name}
        reason = circuit.cause if self.ready is not None else self.fault or "loading"
        if self.options.token is not None:
            reason = reason.partition(":")[0]
        return 503, {"ready": False, "reason": reason}

    def status(self) -> dict[str, Any]:
        """What is loaded and how it goes."""
        ready = self.ready
        scorer = ready.scorer if ready else None
        loaded = {
            "recipe": scorer.reward.name if scorer else None,
            "equation": scorer.reward.equation if scorer else None,
            "models": scorer.fingerprints if scorer else {},
            "signature": ready.signature if ready else None,
            "version": __version__,
        }
        code, health = self.health()
        waiting = ready.batcher.waiting if ready else 0
        return {
            "health": health | {"status": code},
            "loaded": loaded,
            **self.telemetry.status(waiting),
        }

    # --- steps -------------------------------------------------------------------------------

    def _ready(self) -> Ready:
        if self.ready is None:
            raise Refusal(503, "NotReady", self.fault or "loading")
        if self.ready.batcher.waiting > self.options.max_waiting:
            raise Refusal(503, "Busy", f"{self.ready.batcher.waiting:,} rollouts wait already")
        return self.ready

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
        deadline = time.monotonic() + self.options.deadline
        try:
            body = await asyncio.wait_for(
                body_of(request.receive, self.options.max_body), self.options.deadline
            )
            return _json(await self._while_wanted(request, handler(body), len(body), deadline))
        except Exception as error:
            refusal = self._refusal_of(error)
            return _json(_ENCODE(refusal.body), refusal.status)

    def _refusal_of(self, error: Exception) -> Refusal:
        """What a client is told; an error that nobody foresaw is in the log."""
        if isinstance(error, Refusal):
            return error
        if isinstance(error, TooLarge):
            return Refusal(413, "TooLarge", str(error))
        if isinstance(error, asyncio.TimeoutError):
            late = BackendError(f"no score within {self.options.deadline:g} seconds")
            self.telemetry.told([late])
            return Refusal(504, "Deadline", late.message)
        log.exception("a request failed", exc_info=error)
        return Refusal(500, type(error).__name__, "see the server's log")

    async def _while_wanted(
        self, request: Request, work: Coroutine[Any, Any, bytes], size: int, deadline: float
    ) -> bytes:
        """The result, unless the deadline passes or the client goes away."""
        if size <= INLINE_BYTES and not (self.ready and self.ready.scorer.asks):
            return await work  # rules: done before anyone could go
        scoring = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            done, _ = await asyncio.wait(
                (scoring, gone),
                timeout=max(deadline - time.monotonic(), 0.0),
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


def _told(result: ScoreOrError) -> dict[str, Any]:
    if isinstance(result, Score):
        return {
            "reward": result.value,
            "components": result.components,
            "correct": result.correct,
            "details": result.details,
            "error": None,
        }
    message = result.message.encode("utf-8", "replace").decode()
    error = {"type": type(result).__name__, "message": message, "path": result.path}
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
        await server.stop()

    api = FastAPI(
        title="rag-rewards",
        version=__version__,
        description="Rewards for retrieval-augmented generators.",
        lifespan=lifespan,
    )

    shown_page = (files("rag_rewards.server") / "status.html").read_bytes()

    @api.post("/score", openapi_extra=SCORE)
    async def score(request: Request) -> Response:
        """Score rollouts. Rollouts of one group belong into one request."""
        return await server.answer(request, server.rows)

    @api.post("/openrlhf", openapi_extra=OPENRLHF)
    async def openrlhf(request: Request) -> Response:
        """OpenRLHF's remote reward protocol."""
        return await server.answer(request, server.samples)

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
        return Response(shown_page, media_type="text/html", headers=_PAGE_HEADERS)

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


def _said(loading: asyncio.Future[None]) -> None:
    """A load that failed is logged; the server stays up and says so."""
    if not loading.cancelled() and (error := loading.exception()) is not None:
        log.error("not ready: %s: %s", type(error).__name__, error)
