"""HTTP requests to several servers of one model, with retries and load balancing.

All requests of a group go to one server, because its cache contains their common prefix. A group
goes to the server with the fewest tokens in progress. A server that fails, is busy or restarts
receives no requests for some time; its requests move to another server, or wait.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rag_rewards.errors import BackendError, needs_extra, shorten
from rag_rewards.models.endpoints import Endpoint, Limits
from rag_rewards.models.health import Health
from rag_rewards.models.http_responses import (
    UNDECODABLE,
    HttpError,
    ResponseTooLarge,
    error_message,
    get_within,
    is_temporary,
    request_within,
    retry_after_seconds,
)

if TYPE_CHECKING:
    import httpx

_T = TypeVar("_T")
_R = TypeVar("_R")
MAX_BYTES = 512 << 20
"""Maximum size of a response: log-probabilities of a batch of long prompts take some 100 MB."""
MAX_DESCRIPTION_BYTES = 1 << 20
"""Maximum size of a response that describes a model."""
_MAX_TIMEOUTS = 2
"""Number of timeouts after which a request is not repeated."""
_CONNECT_S = 10.0
_MAX_BACKOFF_S = 30.0
_JSON = {"content-type": "application/json"}


@dataclass
class Session:
    """One call: an open client, the servers, and the limits of the call.

    Each call has its own client, so that calls can run in different event loops and leave no open
    connections.
    """

    name: str
    servers: tuple[Endpoint, ...]
    limits: Limits
    client: httpx.AsyncClient
    deadline: float
    groups: asyncio.Semaphore
    requests: asyncio.Semaphore
    health: Health
    number: int

    @asynccontextmanager
    async def place(self, tokens: int) -> AsyncIterator[Place]:
        """Reserve a server for a group with this number of tokens, when one has capacity."""
        async with self.groups:
            place = Place(self, tokens)
            place.move()
            try:
                yield place
            finally:
                place.leave()


@dataclass(frozen=True)
class Servers:
    """Several servers of one model. `name` is the beginning of messages about them."""

    name: str
    endpoints: tuple[Endpoint, ...]
    limits: Limits = field(default_factory=Limits)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    health: Health = field(default_factory=Health, repr=False, compare=False)

    def __post_init__(self) -> None:
        urls = ", ".join(endpoint.url for endpoint in self.endpoints)
        self.health.name = f"{self.name} at {urls}"

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """The TLS context. Without https:// addresses it is empty: certificates load in 35 ms."""
        if not any(endpoint.url.lower().startswith("https") for endpoint in self.endpoints):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context: ssl.SSLContext = _httpx().create_ssl_context()
        return context

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Open a client for one call."""
        httpx, limits = _httpx(), self.limits
        at_once = limits.concurrency * len(self.endpoints)
        pool = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
        timeout = httpx.Timeout(limits.timeout, connect=min(_CONNECT_S, limits.timeout), pool=None)
        deadline = time.monotonic() + (limits.deadline or float("inf"))
        slots = asyncio.Semaphore(at_once), asyncio.Semaphore(at_once)
        async with httpx.AsyncClient(
            limits=pool, timeout=timeout, headers=self.headers, verify=self.tls
        ) as client:
            servers = tuple(endpoint.for_call() for endpoint in self.endpoints)
            number = self.health.start_call()
            yield Session(self.name, servers, limits, client, deadline, *slots, self.health, number)

    async def map(
        self,
        requests: Sequence[_R],
        tokens: Callable[[_R], int],
        work: Callable[[_R, Place], Awaitable[_T]],
    ) -> list[_T | Exception]:
        """Call `work` for each request with a server, and return the results in order.

        `tokens` returns the load of a request. A BackendError is the result of its request.
        """

        async def one(request: _R) -> _T | Exception:
            try:
                async with session.place(tokens(request)) as place:
                    return await work(request, place)
            except BackendError as error:
                return error

        if not requests:
            return []
        async with self.session() as session:
            return await run_concurrently(one(request) for request in requests)

    def split(self) -> list[Servers]:
        """Return one object for each server."""
        return [replace(self, endpoints=(endpoint,)) for endpoint in self.endpoints]

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Add the addresses of the servers to each BackendError of the block."""
        try:
            yield
        except BackendError as error:
            names = ", ".join(endpoint.url for endpoint in self.endpoints)
            raise BackendError(f"{names}: {error}") from error

    def get_sync(self, paths: Sequence[str], answer: type[_T]) -> _T:
        """Send GET without an event loop, and decode the first response with status 200.

        Tries each path on each server. Raises HttpError with the last failure.
        """
        httpx, last = _httpx(), ""
        for endpoint in self.endpoints:
            for path in paths:
                try:
                    response = get_within(
                        MAX_DESCRIPTION_BYTES,
                        _CONNECT_S,
                        endpoint.url + path,
                        self.headers | endpoint.headers,
                    )
                    if response.status_code == 200:
                        return msgspec.json.decode(response.content, type=answer)
                    last = f"answered {path} with status {response.status_code}"
                except (
                    httpx.HTTPError,
                    httpx.InvalidURL,
                    ResponseTooLarge,
                    *UNDECODABLE,
                ) as error:
                    last = f"cannot answer {path}: {type(error).__name__} {error}"
                last = f"{endpoint.url} {last}"
        raise HttpError(f"{self.name}: {last}")


@dataclass
class _Attempts:
    """The failed attempts of one request. `started` is the time of the last attempt."""

    failures: int = 0
    timeouts: int = 0
    started: float = 0.0
    last_error: HttpError | None = None


@dataclass
class Place:
    """The server for the requests of one group. It changes when the server fails."""

    session: Session
    tokens: int
    endpoint: Endpoint = field(init=False)
    _is_reserved: bool = False

    def move(self) -> None:
        """Choose the server that is available first; among equals, the one with the least load."""
        self.leave()
        now, servers = time.monotonic(), self.session.servers
        # A random choice among equal servers: otherwise several processes choose the first one.
        self.endpoint = min(
            random.sample(servers, len(servers)),
            key=lambda server: (max(server.available_at - now, 0.0), server.load.tokens),
        )
        self.endpoint.load.add(self.tokens)
        self._is_reserved = True

    def leave(self) -> None:
        """Remove this group from the load of its server."""
        if self._is_reserved:
            self.endpoint.load.add(-self.tokens)
            self._is_reserved = False

    async def post(
        self, path: str, body: Any, answer: type[_T], *, final: Sequence[int] = ()
    ) -> _T:
        """Send JSON with POST, and decode the response as `answer`.

        Raises HttpError for a status 4xx, for a status in `final`, and for a response of another
        form, and BackendError for a text that is not valid Unicode. Connection errors and the
        statuses 408, 425, 429 and 5xx are repeated until the attempts or the deadline are
        exhausted.
        """
        try:
            content = msgspec.json.encode(body)
        except UnicodeEncodeError:
            raise BackendError(
                f"{self.session.name}: a text contains half of a surrogate pair: remove it"
            ) from None
        return await self._request("POST", path, content, answer, final)

    async def get(self, paths: Sequence[str], answer: type[_T]) -> _T:
        """Send GET to the first path that the server knows, and decode the response, as `post`."""
        for path in paths[:-1]:
            try:
                return await self._request("GET", path, None, answer, ())
            except HttpError as error:
                if error.status != 404:
                    raise
        return await self._request("GET", paths[-1], None, answer, ())

    async def _request(
        self, method: str, path: str, body: bytes | None, answer: type[_T], final: Sequence[int]
    ) -> _T:
        attempts, limits = _Attempts(), self.session.limits
        while True:
            await self._wait(attempts)
            self.session.health.check(self.session.number)
            # Another request of the group can change the server while this one is in progress.
            server = self.endpoint
            content = await self._send(server, method, path, body, attempts, final)
            if content is not None:
                try:
                    decoded = msgspec.json.decode(content, type=answer)
                except msgspec.ValidationError as fault:
                    self._record_success(attempts)
                    raise self._error(
                        server, f"answered {path} with an unexpected form: {fault}"
                    ) from None
                except UNDECODABLE as fault:
                    broken = self._error(server, f"answered {path} with broken JSON: {fault}")
                    self._record_failure(server, attempts, broken)
                else:
                    self._record_success(attempts)
                    return decoded
            if attempts.failures > limits.retries or attempts.timeouts >= _MAX_TIMEOUTS:
                number = "once" if attempts.failures == 1 else f"{attempts.failures} times"
                last = attempts.last_error
                raise HttpError(f"{last} (tried {number})", last.status if last else None)
            if self.endpoint is server:
                self.move()

    async def _wait(self, attempts: _Attempts) -> None:
        """Wait until the server is available. HttpError if that is after the deadline."""
        if attempts.failures and (refusal := self.session.health.unavailable) is not None:
            raise refusal
        pause = max(self.endpoint.available_at - time.monotonic(), 0.0)
        if time.monotonic() + pause >= self.session.deadline:
            reason = f"the deadline of {self.session.limits.deadline:g} s is over"
            # Another request can have made the server unavailable.
            last = attempts.last_error or (self.endpoint.last_error if pause else None)
            if last is not None:
                raise HttpError(f"{last}; {reason}", last.status)
            raise HttpError(f"{self.session.name}: {reason}")
        if pause:
            await asyncio.sleep(pause)

    async def _send(
        self,
        server: Endpoint,
        method: str,
        path: str,
        body: bytes | None,
        attempts: _Attempts,
        final: Sequence[int],
    ) -> bytes | None:
        """Return the body of a response with status 200, None after a temporary failure."""
        httpx = _httpx()
        async with self.session.requests:
            attempts.started = time.monotonic()
            left = self.session.deadline - time.monotonic()
            timeout = max(min(left, self.session.limits.timeout), 1e-3)
            request = request_within(
                self.session.client,
                MAX_BYTES,
                method,
                server.url + path,
                content=body,
                headers=server.headers | ({} if body is None else _JSON),
            )
            try:
                response = await asyncio.wait_for(request, timeout)
            except (asyncio.TimeoutError, httpx.TimeoutException) as fault:
                # A server that cannot be connected may restart; a connected one is too slow.
                attempts.timeouts += not isinstance(fault, httpx.ConnectTimeout)
                slow = self._error(server, f"gave no answer to {path} within {timeout:.3g} s")
                self._record_failure(server, attempts, slow)
                return None
            except ResponseTooLarge as fault:
                raise self._error(server, f"answered {path} with too much: {fault}") from None
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as fault:
                raise self._error(server, f"is not a valid address: {fault}") from None
            except (httpx.TransportError, httpx.DecodingError) as fault:
                reason = f"{type(fault).__name__} {fault}".strip()
                lost = self._error(server, f"lost the connection for {path}: {reason}")
                self._record_failure(server, attempts, lost)
                return None
        status = response.status_code
        if status == 200:
            return bytes(response.content)
        reason = shorten(error_message(response.content), 300)
        refusal = self._error(server, f"answered {path} with status {status}: {reason}", status)
        if status in final or not is_temporary(status):
            self._record_success(attempts)  # the server works, and refuses this request
            raise refusal
        retry_after = retry_after_seconds(response.headers.get("retry-after"))
        self._record_failure(server, attempts, refusal, retry_after)
        return None

    def _record_success(self, attempts: _Attempts) -> None:
        self.session.health.record_success(time.monotonic() - attempts.started)

    def _record_failure(
        self, server: Endpoint, attempts: _Attempts, error: HttpError, retry_after: float = 0.0
    ) -> None:
        """Make a server unavailable for some time, longer after each failure of a request."""
        limits = self.session.limits
        wait = min(limits.backoff * 2.0**attempts.failures, _MAX_BACKOFF_S)
        # Jitter, so that waiting requests do not all return at the same time.
        wait *= random.uniform(0.5, 1.0)  # noqa: S311 (not a secret)
        until = time.monotonic() + max(wait, min(retry_after, limits.timeout))
        server.set_unavailable(until, error)
        attempts.last_error = error
        attempts.failures += 1
        self.session.health.record_failure(str(error), time.monotonic() - attempts.started)

    def _error(self, server: Endpoint, message: str, status: int | None = None) -> HttpError:
        return HttpError(f"{self.session.name}: {server.url} {message}", status)


async def run_concurrently(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Return all results in order. The first exception cancels the rest and is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _httpx() -> Any:
    with needs_extra("http", "httpx"):
        import httpx
    return httpx
