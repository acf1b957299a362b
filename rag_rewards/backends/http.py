"""What policies behind HTTP share: several servers of one model, used as if they were one.

A group of requests that share a prefix stays on one server, where that prefix is cached; servers
get groups by how many tokens they already have to work on. A server that fails, is busy or
restarts is left alone for a while: what it had goes to another one, or waits for it.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rag_rewards.backends.addresses import Address, parse_address
from rag_rewards.errors import BackendError, MissingExtraError, UsageError

if TYPE_CHECKING:
    import httpx

_T = TypeVar("_T")
_R = TypeVar("_R")
_TIMEOUTS = 2
_CONNECT = 10.0
_LONGEST_WAIT = 30.0
UNDECODABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What msgspec raises for bytes that are not JSON, or that nest too deeply."""
_JSON = {"content-type": "application/json"}


class HttpError(BackendError):
    """A server's refusal or failure. `status` is that of the last answer, None without one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """How long to wait, how often to try, how much to ask at once.

    timeout       seconds for one HTTP request
    deadline      seconds for one call with all its requests; None is no limit
    retries       further tries of a request after a connection error, a 429 or a 5xx
    backoff       seconds before the first further try on the same server; doubles up to 30
    concurrency   groups at work at once on each server, and as many HTTP requests
    batch         prompts in one HTTP request
    """

    timeout: float = 600.0
    deadline: float | None = None
    retries: int = 8
    backoff: float = 0.5
    concurrency: int = 16
    batch: int = 16

    def __post_init__(self) -> None:
        for name in ("timeout", "backoff", "concurrency", "batch"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.retries < 0:
            raise UsageError(f"retries must be at least 0, not {self.retries}")
        if self.deadline is not None and self.deadline <= 0:
            raise UsageError(f"deadline must be above 0, not {self.deadline}")


@dataclass
class Endpoint:
    """One server: its address, the tokens it is at work on, and when to try it again."""

    address: Address
    load: int = 0
    resting_until: float = 0.0

    @property
    def url(self) -> str:
        """The address, without credentials."""
        return self.address.url

    @property
    def headers(self) -> dict[str, str]:
        """Headers that this server alone is sent."""
        authorization = self.address.authorization
        return {} if authorization is None else {"authorization": authorization}


def endpoints(urls: str | Sequence[str]) -> tuple[Endpoint, ...]:
    """The servers of these addresses, each once. UsageError for one that cannot be asked."""
    addresses = [urls] if isinstance(urls, str) else list(urls)
    if not addresses:
        raise UsageError("no address of a server given")
    return tuple(Endpoint(address) for address in dict.fromkeys(map(parse_address, addresses)))


@dataclass
class Session:
    """One call: an open client, the servers, and what bounds the call.

    A client lives as long as one call, so that calls may come from different event loops and
    nothing is left open behind them.
    """

    who: str
    servers: tuple[Endpoint, ...]
    limits: Limits
    client: httpx.AsyncClient
    ends: float
    groups: asyncio.Semaphore
    requests: asyncio.Semaphore

    @asynccontextmanager
    async def place(self, tokens: int) -> AsyncIterator[Place]:
        """A server for a group of so many tokens; waits for its turn."""
        async with self.groups:
            place = Place(self, tokens)
            place.move()
            try:
                yield place
            finally:
                place.leave()


@dataclass(frozen=True)
class Servers:
    """Several servers of one model. `who` begins every message about them."""

    who: str
    endpoints: tuple[Endpoint, ...]
    limits: Limits = field(default_factory=Limits)
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """Made once, and empty where no address is https://: certificates take 35 ms to read."""
        if not any(endpoint.url.lower().startswith("https") for endpoint in self.endpoints):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        known: ssl.SSLContext = _httpx().create_ssl_context()
        return known

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """An open client for one call."""
        httpx, limits = _httpx(), self.limits
        at_once = limits.concurrency * len(self.endpoints)
        pool = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
        timeout = httpx.Timeout(limits.timeout, connect=min(_CONNECT, limits.timeout), pool=None)
        ends = time.monotonic() + (limits.deadline or float("inf"))
        slots = asyncio.Semaphore(at_once), asyncio.Semaphore(at_once)
        async with httpx.AsyncClient(
            limits=pool, timeout=timeout, headers=self.headers, verify=self.tls
        ) as client:
            yield Session(self.who, self.endpoints, limits, client, ends, *slots)

    async def each(
        self,
        requests: Sequence[_R],
        tokens: Callable[[_R], int],
        work: Callable[[_R, Place], Awaitable[_T]],
    ) -> list[_T | Exception]:
        """Work on every request at a place of its own; a BackendError is that request's result."""

        async def one(request: _R) -> _T | Exception:
            try:
                async with calls.place(tokens(request)) as place:
                    return await work(request, place)
            except BackendError as error:
                return error

        if not requests:
            return []
        async with self.session() as calls:
            return await run_concurrently(one(request) for request in requests)

    def apart(self) -> list[Servers]:
        """Each server by itself."""
        return [replace(self, endpoints=(endpoint,)) for endpoint in self.endpoints]

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors within say which server they are about."""
        try:
            yield
        except BackendError as error:
            names = ", ".join(endpoint.url for endpoint in self.endpoints)
            raise BackendError(f"{names}: {error}") from error

    def ask_once(self, paths: Sequence[str], answer: type[_T]) -> _T:
        """GET without an event loop, from the first server that answers one of the paths."""
        httpx, last = _httpx(), ""
        for endpoint in self.endpoints:
            for path in paths:
                try:
                    response = httpx.get(
                        endpoint.url + path,
                        headers=self.headers | endpoint.headers,
                        timeout=_CONNECT,
                    )
                    if response.status_code == 200:
                        return msgspec.json.decode(response.content, type=answer)
                    last = f"answered {path} with status {response.status_code}"
                except (httpx.HTTPError, httpx.InvalidURL, *UNDECODABLE) as error:
                    last = f"cannot be asked for {path}: {type(error).__name__} {error}"
                last = f"{endpoint.url} {last}"
        raise HttpError(f"{self.who}: {last}")


@dataclass
class _Trial:
    """How one request fared so far."""

    failures: int = 0
    timeouts: int = 0
    last: HttpError = field(default_factory=lambda: HttpError("not tried"))


@dataclass
class Place:
    """Where the requests of one group go. It moves when its server fails."""

    session: Session
    tokens: int
    endpoint: Endpoint = field(init=False)
    _taken: bool = False

    def move(self) -> None:
        """To the server that can be asked soonest; of those, to the least loaded."""
        self.leave()
        now, servers = time.monotonic(), self.session.servers
        # Equal servers are taken by chance: several callers would all take the first.
        self.endpoint = min(
            random.sample(servers, len(servers)),
            key=lambda server: (max(server.resting_until - now, 0.0), server.load),
        )
        self.endpoint.load += self.tokens
        self._taken = True

    def leave(self) -> None:
        """The server is free of this group."""
        if self._taken:
            self.endpoint.load -= self.tokens
            self._taken = False

    async def post(
        self, path: str, body: Any, answer: type[_T], *, final: Sequence[int] = ()
    ) -> _T:
        """POST JSON and decode the answer.

        Raises HttpError, once, for a refusal (4xx, or a status in `final`), and for failures of
        the connection, 408, 429 and 5xx when the tries or the time are used up.
        """
        return await self._ask("POST", path, msgspec.json.encode(body), answer, final)

    async def get(self, paths: Sequence[str], answer: type[_T]) -> _T:
        """GET and decode the answer of the first path that the server knows; else as `post`."""
        for path in paths[:-1]:
            try:
                return await self._ask("GET", path, None, answer, ())
            except HttpError as error:
                if error.status != 404:
                    raise
        return await self._ask("GET", paths[-1], None, answer, ())

    async def _ask(
        self, method: str, path: str, body: bytes | None, answer: type[_T], final: Sequence[int]
    ) -> _T:
        trial, limits = _Trial(), self.session.limits
        while True:
            await self._wait(trial)
            # Another request of the group may move the place while this one is under way.
            server = self.endpoint
            content = await self._try(server, method, path, body, trial, final)
            if content is not None:
                try:
                    return msgspec.json.decode(content, type=answer)
                except msgspec.ValidationError as fault:
                    raise self._error(server, f"answered {path} otherwise: {fault}") from None
                except UNDECODABLE as fault:
                    broken = self._error(server, f"answered {path} with broken JSON: {fault}")
                    self._failed(server, trial, broken)
            if trial.failures > limits.retries or trial.timeouts >= _TIMEOUTS:
                tries = "once" if trial.failures == 1 else f"{trial.failures} times"
                raise HttpError(f"{trial.last} (tried {tries})", trial.last.status)
            if self.endpoint is server:
                self.move()

    async def _wait(self, trial: _Trial) -> None:
        """Until the server may be asked, if that is within the deadline."""
        pause = max(self.endpoint.resting_until - time.monotonic(), 0.0)
        if time.monotonic() + pause >= self.session.ends:
            over = f"the deadline of {self.session.limits.deadline:g} s is over"
            if trial.failures:
                raise HttpError(f"{trial.last}; {over}", trial.last.status)
            raise HttpError(f"{self.session.who}: {over}")
        if pause:
            await asyncio.sleep(pause)

    async def _try(
        self,
        server: Endpoint,
        method: str,
        path: str,
        body: bytes | None,
        trial: _Trial,
        final: Sequence[int],
    ) -> bytes | None:
        """The body of a good answer, None after a failure that may pass."""
        httpx = _httpx()
        async with self.session.requests:
            left = max(min(self.session.ends - time.monotonic(), self.session.limits.timeout), 1e-3)
            asking = self.session.client.request(
                method,
                server.url + path,
                content=body,
                headers=server.headers | ({} if body is None else _JSON),
            )
            try:
                response = await asyncio.wait_for(asking, left)
            except (asyncio.TimeoutError, httpx.TimeoutException) as fault:
                # Not connected is a server that is not there; no answer is one that is too slow.
                trial.timeouts += not isinstance(fault, httpx.ConnectTimeout)
                slow = self._error(server, f"gave no answer to {path} within {left:.3g} s")
                self._failed(server, trial, slow)
                return None
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as fault:
                raise self._error(server, f"cannot be asked: {fault}") from None
            except (httpx.TransportError, httpx.DecodingError) as fault:
                what = f"{type(fault).__name__} {fault}".strip()
                lost = self._error(server, f"lost the connection for {path}: {what}")
                self._failed(server, trial, lost)
                return None
        status = response.status_code
        if status == 200:
            return bytes(response.content)
        refusal = self._error(
            server, f"answered {path} with status {status}: {_reason(response.content)}", status
        )
        if status in final or not _may_pass(status):
            raise refusal
        self._failed(server, trial, refusal, _retry_after(response.headers.get("retry-after")))
        return None

    def _failed(
        self, server: Endpoint, trial: _Trial, error: HttpError, asked_for: float = 0.0
    ) -> None:
        """Leave a server alone for a while, longer after every failure of the same request."""
        limits = self.session.limits
        wait = min(limits.backoff * 2.0**trial.failures, _LONGEST_WAIT)
        # Jitter, so that all that waited for one server do not come back at once.
        wait *= random.uniform(0.5, 1.0)  # noqa: S311 (not a secret)
        until = time.monotonic() + max(wait, min(asked_for, limits.timeout))
        server.resting_until = max(server.resting_until, until)
        trial.last = error
        trial.failures += 1

    def _error(self, server: Endpoint, message: str, status: int | None = None) -> HttpError:
        return HttpError(f"{self.session.who}: {server.url} {message}", status)


async def run_concurrently(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """All results in order; the first failure ends the rest before it is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _may_pass(status: int) -> bool:
    return status in (408, 425, 429) or status >= 500


def _retry_after(value: str | None) -> float:
    """Seconds of a Retry-After header, which is a number or a date; 0 without one."""
    if value is None:
        return 0.0
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    return max((when - datetime.now(timezone.utc)).total_seconds(), 0.0)


def _reason(content: bytes) -> str:
    """What a server says about a failure: OpenAI's error object, FastAPI's detail, or its text."""
    text = content.decode("utf-8", "replace")
    with suppress(*UNDECODABLE):
        body = msgspec.json.decode(content)
        for key in ("error", "message", "detail"):
            if isinstance(body, dict) and key in body:
                body = body[key]
        text = body if isinstance(body, str) else text
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:297] + "..."


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise MissingExtraError("httpx", extra="http") from None
    return httpx
