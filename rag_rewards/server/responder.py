"""Responses to requests: receive the body, limit time and memory, convert errors to responses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from rag_rewards.errors import BackendError, needs_extra
from rag_rewards.server.guard import ClientGone, TooLarge, body_of
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.request_errors import RequestError
from rag_rewards.server.telemetry import Telemetry, log, log_refusal

with needs_extra("server"):
    from fastapi import Request, Response

Handler = Callable[[bytes], Coroutine[Any, Any, bytes]]
BUSY_SECONDS = 1.0
"""Time after which a client of a busy server can try again."""
_ENCODE = msgspec.json.Encoder().encode


class Responder:
    """Answers requests with the result of a handler, or with an error.

    options        the limits of a request
    telemetry      the counters of requests and errors
    pending_bytes  returns the size of the requests that wait or are scored
    is_prompt      returns whether a body of this size is scored within a few milliseconds
    """

    def __init__(
        self,
        options: ServerOptions,
        telemetry: Telemetry,
        pending_bytes: Callable[[], int],
        is_prompt: Callable[[int], bool],
    ) -> None:
        self.options, self.telemetry = options, telemetry
        self._pending_bytes, self._is_prompt = pending_bytes, is_prompt
        self._receiving = 0
        """Size of the bodies that are being received, in bytes."""

    async def answer(self, request: Request, handler: Handler) -> Response:
        """Read the body and handle it within the deadline. Errors become responses."""
        deadline = time.monotonic() + self.options.deadline
        try:
            body = await asyncio.wait_for(self._receive(request), self.options.deadline)
            if self._is_prompt(len(body)):
                return json_response(await handler(body))  # takes less time than a disconnection
            return json_response(await self._until_disconnect(request, handler(body), deadline))
        except Exception as error:
            return self.failure(error)

    def failure(self, error: Exception) -> Response:
        """Return the response to a request that failed."""
        failure = self._request_error(error)
        self.telemetry.record_request_error(failure.kind)
        if failure.status != 500:  # the log has its traceback
            log_refusal(failure)
        return json_response(_ENCODE(failure.body), failure.status, failure.headers)

    async def _receive(self, request: Request) -> bytes:
        """Return the body. 503 as soon as the requests in memory exceed their limit."""
        received = 0

        def count(size: int) -> None:
            nonlocal received
            self._receiving += size - received
            received = size
            if self._receiving + self._pending_bytes() > self.options.max_pending:
                reason = "other requests are being received or scored"
                raise RequestError(503, "Busy", reason, retry_after=BUSY_SECONDS)

        try:
            return await body_of(request.receive, self.options.max_body, count)
        finally:
            self._receiving -= received

    def _request_error(self, error: Exception) -> RequestError:
        """Return the error for the client. Details of unexpected errors are only logged."""
        if isinstance(error, RequestError):
            return error
        if isinstance(error, ClientGone):
            self.telemetry.disconnected.inc()
            return RequestError(499, "ClientGone", "the client disconnected")
        if isinstance(error, TooLarge):
            return RequestError(413, "TooLarge", str(error))
        if isinstance(error, asyncio.TimeoutError):
            timeout = BackendError(f"no score within {self.options.deadline:g} seconds")
            self.telemetry.record([timeout])
            return RequestError(504, "Deadline", timeout.message)
        log.exception("unexpected error in a request", exc_info=error)
        return RequestError(500, type(error).__name__, "unexpected error: see the server's log")

    async def _until_disconnect(
        self, request: Request, work: Coroutine[Any, Any, bytes], deadline: float
    ) -> bytes:
        """Return the result, unless the deadline passes or the client disconnects before."""
        scoring = asyncio.ensure_future(work)
        disconnected = asyncio.ensure_future(_disconnected(request))
        try:
            done, _ = await asyncio.wait(
                (scoring, disconnected),
                timeout=max(deadline - time.monotonic(), 0.0),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            disconnected.cancel()
            scoring.cancel()  # also if this request is itself cancelled; ignored if it is done
        if scoring in done:
            return scoring.result()
        if done:
            raise ClientGone
        raise asyncio.TimeoutError


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def json_response(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with this JSON body."""
    return Response(body, status, headers, media_type="application/json")
