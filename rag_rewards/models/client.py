"""Requests to the servers of a model. No other module of the package uses the HTTP library.

A call processes items, such as groups or questions. All requests of an item go to one server,
because its cache contains their common prefix: the server with the least load. A server that fails
receives no items for some time; its requests move to another server, or wait.
"""

from __future__ import annotations

import asyncio
import math
import random
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from rag_rewards.errors import BackendError, needs_extra, shorten
from rag_rewards.evidence.gather import run_coroutine
from rag_rewards.models.addresses import Server
from rag_rewards.models.calls import Call, PerLoop, SharedState
from rag_rewards.models.health import Health
from rag_rewards.models.limits import Limits
from rag_rewards.models.responses import (
    UNDECODABLE,
    HttpError,
    Response,
    ResponseTooLarge,
    TemporaryFailure,
    error_message,
    is_temporary,
    receive,
    retry_after_seconds,
)

if TYPE_CHECKING:
    import httpx

_T = TypeVar("_T")
_R = TypeVar("_R")
_D = TypeVar("_D")
MAX_BYTES = 512 << 20
"""Maximum size of a response: log-probabilities of a batch of long prompts take some 100 MB."""
MAX_DESCRIPTION_BYTES = 1 << 20
"""Maximum size of a response that describes a model."""
_MAX_TIMEOUTS = 2
"""Number of timeouts after which a request is not repeated."""
_CONNECT_S = 10.0
_MAX_BACKOFF_S = 30.0
_JSON = {"content-type": "application/json"}
_NO_CREDIT = "the account has no credit"
_REDIRECT = "a redirect; use its target as the address"
_HINTS = {
    **dict.fromkeys(range(300, 400), _REDIRECT),
    402: _NO_CREDIT,
    404: "check the address and the name of the model",
    405: "check the address",
}
"""Status codes that every request with POST would get, and how to fix them."""


def _ignore_request(seconds: float) -> None:
    """Do nothing after a request."""


@dataclass
class Client:
    """The servers of one model. Its methods can be called from several threads.

    name        beginning of messages about the servers
    servers     the servers, with their load
    limits      limits of the requests
    headers     headers of all requests
    extra       the extra that installs the HTTP library
    max_bytes   maximum size of a response
    keys        places of the key, for the error of a wrong one
    on_request  called after each request, with its duration in seconds
    health      whether the servers respond

    Connections are closed when no call is under way, so that calls can run in different event
    loops. Raises MissingExtraError if httpx is not installed.
    """

    name: str
    servers: tuple[Server, ...]
    limits: Limits = field(default_factory=Limits)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra: str = "http"
    max_bytes: int = MAX_BYTES
    keys: str = "api_key"
    on_request: Callable[[float], None] = field(default=_ignore_request, repr=False)
    health: Health = field(default_factory=Health, repr=False)

    def __post_init__(self) -> None:
        with needs_extra(self.extra, "httpx"):
            import httpx  # noqa: F401
        self.health.name = self.name
        slots = self.limits.concurrency * len(self.servers)
        self._shared = PerLoop(lambda: SharedState(asyncio.Semaphore(slots)), SharedState.close)

    @property
    def urls(self) -> str:
        """The addresses of the servers, for messages."""
        return ", ".join(server.url for server in self.servers)

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """The TLS context. Without https:// addresses it is empty: certificates load in 35 ms."""
        import httpx

        if not any(server.url.lower().startswith("https") for server in self.servers):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context: ssl.SSLContext = httpx.create_ssl_context()
        return context

    async def map(
        self,
        items: Sequence[_R],
        work: Callable[[_R, Sender], Awaitable[_T]],
        *,
        load: Callable[[_R], int] = lambda item: 1,
        name: Callable[[_R], str] | None = None,
        deadline: float | None = None,
    ) -> list[_T | Exception]:
        """Call `work` for each item with a server, and return the results in order.

        load      number of tokens of an item
        name      beginning of the errors of an item; default: the name of the client
        deadline  deadline on the monotonic clock; default: that of a call which begins now

        A BackendError, also one at the deadline, is the result of its item.
        """
        results: dict[int, _T | Exception] = {}
        waiting = iter(enumerate(items))

        async def process(call: Call) -> None:
            for i, item in waiting:
                label = name(item) if name else self.name
                with Sender(self, call, load(item), label) as sender:
                    try:
                        results[i] = await work(item, sender)
                    except BackendError as error:
                        results[i] = without_frames(error)

        if items:
            async with self._shared.use() as shared:
                ends_at = self.new_deadline() if deadline is None else deadline
                call = Call(shared, self.health.start_call(), ends_at)
                at_once = min(len(items), self.limits.concurrency * len(self.servers))
                await call.run([process(call) for _ in range(at_once)])
        for i, item in enumerate(items):
            if i not in results:
                label = name(item) if name else self.name
                results[i] = HttpError(f"{label}: {self.deadline} is over")
        return [results[i] for i in range(len(items))]

    async def one(
        self, work: Callable[[Sender], Awaitable[_T]], deadline: float | None = None
    ) -> _T:
        """Call `work` with a server, and return its result. Raises its error."""
        (result,) = await self.map([None], lambda _, sender: work(sender), deadline=deadline)
        if isinstance(result, Exception):
            raise result
        return result

    def one_sync(self, work: Callable[[Sender], Awaitable[_T]]) -> _T:
        """Return the same as `one`, for callers without an event loop. Each server is tried once.

        Raises the error of the last server, after at most 10 seconds for each.
        """
        timeout = min(self.limits.timeout, _CONNECT_S)
        limits = replace(self.limits, retries=0, timeout=timeout, deadline=None)
        *others, last = replace(self, limits=limits).split()
        for client in others:
            with suppress(HttpError):
                return run_coroutine(client.one(work))
        return run_coroutine(last.one(work))

    def split(self) -> list[Client]:
        """Return one object for each server."""
        return [replace(self, servers=(server,)) for server in self.servers]

    def new_deadline(self) -> float:
        """Return the deadline, on the monotonic clock, of a call which begins now."""
        return time.monotonic() + (self.limits.deadline or math.inf)

    @property
    def deadline(self) -> str:
        """The deadline of a call, for messages."""
        seconds = self.limits.deadline
        return "the call" if seconds is None else f"the deadline of {seconds:g} s"

    def message_text(self, text: str, length: int = 300) -> str:
        """Return a text of a server for a message: short, on one line, without keys and queries."""
        values = [
            self.headers.get("authorization"),
            *(server.address.authorization for server in self.servers),
            *(server.address.query for server in self.servers),
        ]
        for value in filter(None, values):
            text = text.replace(value.partition(" ")[2] or value, "***")
        return shorten(text, length)

    def new_connection(self) -> httpx.AsyncClient:
        """Return an HTTP client for one request at a time."""
        import httpx

        connect = min(_CONNECT_S, self.limits.timeout)
        timeout = httpx.Timeout(None, connect=connect)
        return httpx.AsyncClient(verify=self.tls, headers=dict(self.headers), timeout=timeout)


class ModelServers(ABC, Generic[_D]):
    """A model on servers, whose description is requested once, before its first use."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._description: _D | None = None

    @abstractmethod
    async def _describe(self, sender: Sender) -> _D:
        """Request the description from a server. BackendError for one without such a model."""

    async def _described(self, deadline: float | None = None) -> _D:
        if self._description is None:
            self._description = await self._client.one(self._describe, deadline)
        return self._description

    def _described_sync(self) -> _D:
        """Return the same as `_described`, for callers without an event loop."""
        if self._description is None:
            self._description = self._client.one_sync(self._describe)
        return self._description

    @property
    def health(self) -> Health:
        """The health of the servers."""
        return self._client.health

    async def close(self) -> None:
        """Do nothing: no connection is kept open between calls."""


def without_frames(error: BackendError) -> BackendError:
    """Return an error without the frames in which it was raised: they keep its response alive."""
    error.__context__ = None
    return error.with_traceback(None)


@dataclass
class _Attempts:
    """The failed attempts of one request, and the number of other responses before the last."""

    successes: int
    failures: int = 0
    timeouts: int = 0


@dataclass
class Sender:
    """Sends the requests of one item to a server, which changes when it fails.

    `name` is the beginning of messages about the item.
    """

    client: Client
    call: Call
    tokens: int
    name: str
    server: Server = field(init=False)

    def __enter__(self) -> Sender:
        self._choose()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.add_load(-self.tokens)

    def _choose(self) -> None:
        """Choose the server that is available first; among equals, the one with the least load."""
        now, servers = time.monotonic(), self.client.servers

        def rank(server: Server) -> tuple[float, int]:
            until = max(self.call.paused_until(server), self.call.shared.failed[server.url])
            return max(until - now, 0.0), server.tokens

        # A random choice among equal servers: otherwise several processes choose the first one.
        self.server = min(random.sample(servers, len(servers)), key=rank)
        self.server.add_load(self.tokens)

    def _move(self) -> None:
        self.server.add_load(-self.tokens)
        self._choose()

    def error(self, reason: str, status: int | None = None) -> HttpError:
        """Return an error of this item."""
        return HttpError(f"{self.name}: {reason}", status)

    async def post(self, path: str, body: Any, answer: type[_T]) -> _T:
        """Send JSON (bytes are JSON) with POST, and decode the response as `answer`.

        Raises HttpError for a status 4xx, and, with the status 200, for a response of another form
        or above the maximum size; BackendUnavailable while the servers fail; and BackendError for a
        text that is not valid Unicode. Connection errors, timeouts, broken JSON and the statuses
        408, 425, 429 and 5xx are repeated until the attempts or the deadline are exhausted.
        """
        try:
            content = body if isinstance(body, bytes) else msgspec.json.encode(body, order="sorted")
        except UnicodeEncodeError:
            raise BackendError(
                f"{self.name}: a text contains half of a surrogate pair: remove it"
            ) from None
        return await self._request(_Request("POST", path, content), answer)

    async def get(self, paths: Sequence[str], answer: type[_T]) -> _T:
        """Send GET to the first path that the server knows, and decode the response, as `post`."""
        for path in paths[:-1]:
            try:
                return await self._request(_Request("GET", path), answer)
            except HttpError as error:
                if error.status is None or is_temporary(error.status):
                    raise
        return await self._request(_Request("GET", paths[-1]), answer)

    async def _request(self, request: _Request, answer: type[_T]) -> _T:
        attempts = _Attempts(self.client.health.successes)
        while True:
            async with self.call.shared.slots:
                await self._wait_for_server()
                # Another request of the item can change the server while this one is in progress.
                server = self.server
                try:
                    return await self._attempt(server, request, answer)
                except TemporaryFailure as fault:
                    failure = fault
            await self._wait_to_retry(server, attempts, failure)

    async def _wait_for_server(self) -> None:
        """Wait until a server accepts a request. HttpError if that is after the deadline."""
        client, call = self.client, self.call
        if call.deadline <= time.monotonic():
            raise self.error(f"{client.deadline} is over")
        while call.paused_until(self.server) > time.monotonic():
            self._move()
            paused_until = call.paused_until(self.server)
            if paused_until >= call.deadline:
                cause = call.shared.causes.get(self.server.url, "")
                reason = f"the next attempt would be after {client.deadline}"
                raise self.error(f"{cause}; {reason}")
            await asyncio.sleep(max(paused_until - time.monotonic(), 0.0))
        client.health.check(call.number)

    async def _attempt(self, server: Server, request: _Request, answer: type[_T]) -> _T:
        """Send a request once. Raises TemporaryFailure or HttpError."""
        client, started = self.client, time.monotonic()
        try:
            response = await self._send(server, request)
            result = self._read(server, request, response, answer)
        except TemporaryFailure as failure:
            client.health.record_failure(self._reason(failure), time.monotonic() - started)
            raise
        except HttpError as error:
            seconds = time.monotonic() - started
            if error.affects_all:
                client.health.give_up(self._reason(error), seconds)
            elif error.status == 200:
                client.health.record_failure(self._reason(error), seconds)
            else:  # the server works, and refuses this request
                client.health.record_success(seconds)
            raise
        finally:
            client.on_request(time.monotonic() - started)
        client.health.record_success(time.monotonic() - started)
        return result

    def _reason(self, error: Exception) -> str:
        """Return the message of an error without the name of this item."""
        return str(error).removeprefix(f"{self.name}: ")

    async def _send(self, server: Server, request: _Request) -> Response:
        """Return a response. Raises TemporaryFailure or HttpError without one."""
        import httpx

        client, shared = self.client, self.call.shared
        left = self.call.deadline - time.monotonic()
        timeout = max(min(left, client.limits.timeout), 1e-3)
        address = server.address
        own = {} if address.authorization is None else {"authorization": address.authorization}
        connection = shared.idle.pop() if shared.idle else client.new_connection()
        try:
            # The timeouts of httpx apply to each read: a slow trickle of bytes would never end.
            return await asyncio.wait_for(
                receive(
                    connection,
                    client.max_bytes if request.method == "POST" else MAX_DESCRIPTION_BYTES,
                    request.method,
                    address.url + request.path + address.query,
                    content=request.content,
                    headers=own if request.content is None else own | _JSON,
                ),
                timeout,
            )
        except (asyncio.TimeoutError, httpx.TimeoutException) as fault:
            # A server that cannot be connected may restart; a connected one is too slow.
            is_slow = not isinstance(fault, httpx.ConnectTimeout)
            reason = f"{server.url} gave no answer to {request.path} within {timeout:.3g} s"
            raise TemporaryFailure(self.error(reason), is_timeout=is_slow) from None
        except ResponseTooLarge as fault:
            reason = f"{server.url} answered {request.path} with too much: {fault}"
            raise self.error(reason, 200) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as fault:
            raise self.error(f"{server.url} is not a valid address: {fault}") from None
        except (httpx.TransportError, httpx.DecodingError) as fault:
            cause = client.message_text(f"{type(fault).__name__} {fault}".strip())
            reason = f"{server.url} lost the connection for {request.path}: {cause}"
            raise TemporaryFailure(self.error(reason)) from None
        finally:
            shared.idle.append(connection)

    def _read(self, server: Server, request: _Request, response: Response, answer: type[_T]) -> _T:
        """Return the content of a response. Raises TemporaryFailure or HttpError."""
        client, status, content = self.client, response.status, response.content
        subject = f"{server.url} answered {request.path} with"
        if status == 200:
            try:
                return msgspec.json.decode(content, type=answer)
            except msgspec.ValidationError as fault:
                raise self.error(f"{subject} an unexpected form: {fault}", 200) from None
            except UNDECODABLE:
                text = client.message_text(content[:1000].decode("utf-8", "replace"), 100)
                reason = f"{subject} broken JSON: {text}"
                if request.method == "GET":  # a page for each path that the server does not know
                    raise self.error(reason, 200) from None
                raise TemporaryFailure(self.error(reason)) from None
        reason = f"{subject} status {status}: {client.message_text(error_message(content))}"
        hint = f"check the key: {client.keys}" if status == 401 else _HINTS.get(status)
        if status == 429 and b"insufficient_quota" in content:
            hint = _NO_CREDIT
        if hint:
            affects_all = request.method == "POST"  # GET also looks for a path
            raise HttpError(f"{self.name}: {reason} ({hint})", status, affects_all=affects_all)
        if not is_temporary(status):
            raise self.error(reason, status)
        pause = retry_after_seconds(response.retry_after)
        raise TemporaryFailure(self.error(reason, status), pause)

    async def _wait_to_retry(
        self, server: Server, attempts: _Attempts, failure: TemporaryFailure
    ) -> None:
        """Wait for the next attempt. Raises HttpError if there is none."""
        call, shared, limits = self.call, self.call.shared, self.client.limits
        health, error = self.client.health, failure.error
        health.check(call.number)
        if error.status == 429 and health.successes > attempts.successes:
            attempts.failures = 0  # the rate of the server is lower than that of the requests
        attempts.successes = health.successes
        attempts.failures += 1
        attempts.timeouts += failure.is_timeout
        if attempts.failures > limits.retries or attempts.timeouts >= _MAX_TIMEOUTS:
            number = "once" if attempts.failures == 1 else f"{attempts.failures} times"
            raise HttpError(f"{error} (tried {number})", error.status)
        now = time.monotonic()
        backoff = min(limits.backoff * 2.0 ** (attempts.failures - 1), _MAX_BACKOFF_S)
        # Jitter, so that waiting requests do not all return at the same time.
        wait = backoff * random.uniform(0.5, 1.0)  # noqa: S311 (not a secret)
        pause = min(failure.retry_after, limits.deadline or limits.timeout)
        call.pause(server, pause, self._reason(error))
        shared.failed[server.url] = max(shared.failed[server.url], now + max(wait, pause))
        if self.server is server:
            self._move()
        if shared.failed[self.server.url] <= now:
            return
        wait = max(wait, pause) if self.server is server else wait
        if now + wait >= call.deadline:
            reason = f"the next attempt would be after {self.client.deadline}"
            raise HttpError(f"{error}; {reason}", error.status)
        await asyncio.sleep(wait)


@dataclass(frozen=True)
class _Request:
    """A request, as in `Sender.post`."""

    method: str
    path: str
    content: bytes | None = None
