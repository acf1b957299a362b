"""The `/chat/completions` endpoint: its address, its requests, and the failures of a response."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from rag_rewards.errors import UsageError, needs_extra, shorten
from rag_rewards.models.addresses import without_credentials
from rag_rewards.models.health import Health
from rag_rewards.models.http_responses import (
    UNDECODABLE,
    ResponseTooLarge,
    error_message,
    is_temporary,
    request_within,
    retry_after_seconds,
)

if TYPE_CHECKING:
    import httpx

_MAX_TOKENS = 1 << 40
"""Counts of tokens of one response above this are impossible."""
MAX_BYTES = 16 << 20
"""Maximum size of a response; one of 100,000 tokens has less than 1 MB."""
RETRIES_OF_UNUSABLE = 2
"""Retries of a response without a verdict: at temperature 0, it is often the same again."""
_HINTS = {
    401: "check the key: api_key, RAG_REWARDS_JUDGE_KEY or OPENAI_API_KEY",
    402: "the account has no credit",
    404: "check the model's name and base_url",
    405: "check base_url",
}
"""Status codes that no other question can avoid, and how to fix them."""
_REDIRECT = "a redirect; give its target as base_url"


class TemporaryFailure(Exception):
    """A failed attempt. Another one can succeed, after `wait` seconds or more.

    `is_unusable` if there is a response without a verdict, which is repeated `RETRIES_OF_UNUSABLE`
    times. `is_postponed` if the server limits the rate of requests, and did not try this one.
    """

    def __init__(
        self,
        message: str,
        wait: float = 0.0,
        *,
        is_unusable: bool = False,
        is_postponed: bool = False,
    ) -> None:
        super().__init__(message)
        self.wait = wait
        self.is_unusable = is_unusable
        self.is_postponed = is_postponed


class FinalFailure(Exception):
    """A failure that further attempts cannot fix.

    With `affects_all`, requests for other questions fail in the same way.
    """

    def __init__(self, message: str, *, affects_all: bool = False) -> None:
        super().__init__(message)
        self.affects_all = affects_all


@dataclass(frozen=True)
class ChatResponse:
    """The text of a response, and its number of tokens; `is_counted` if the server counted them."""

    text: str
    refusal: str
    is_truncated: bool
    prompt_tokens: int
    completion_tokens: int
    is_counted: bool


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _TokenCounts(msgspec.Struct):
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _TokenCounts | None = None


class ChatEndpoint:
    """The address of a chat model, its key, and the requests to it.

    base_url  address before /chat/completions
    api_key   default: RAG_REWARDS_JUDGE_KEY, or (only over https) OPENAI_API_KEY
    timeout   seconds for one request

    Built on httpx and not on the openai library, which takes three times the processor time for a
    request (benchmarks/judge.py --openai: 3.3 s against 1.1 s for 1,000 requests), and which hides
    its own retries. Raises UsageError for an invalid address or key, and MissingExtraError if
    httpx is not installed.
    """

    def __init__(self, base_url: str, api_key: str | None, timeout: float) -> None:
        self._httpx = _import_httpx()
        self.url = self._chat_url(base_url)
        self.shown_url = without_credentials(str(self.url))
        self.headers = _headers(_find_key(api_key, is_secure=self.url.scheme == "https"))
        self._timeout = timeout
        self._ssl: Any = None
        self.health = Health(f"the judge at {self.shown_url}")

    def new_client(self) -> httpx.AsyncClient:
        """Return a client for one request at a time.

        The connection pool of a client with several connections searches all of them at each
        request.
        """
        if self._ssl is None:
            # Certificates take 20 ms to load: only once, and only for https.
            is_secure = self.url.scheme == "https"
            self._ssl = self._httpx.create_ssl_context() if is_secure else False
        client: httpx.AsyncClient = self._httpx.AsyncClient(verify=self._ssl, timeout=None)
        return client

    async def complete(self, client: httpx.AsyncClient, content: bytes) -> ChatResponse:
        """Send a request body, and return the content of the response.

        Raises TemporaryFailure or FinalFailure, and BackendUnavailable while the server fails.
        """
        self.health.check(self.health.start_call())
        started = time.monotonic()
        try:
            response = self._read(await self._post(client, content))
        except TemporaryFailure as failure:
            self.health.record_failure(str(failure), time.monotonic() - started)
            raise
        except FinalFailure:  # the server works, and refuses this request
            self.health.record_success(time.monotonic() - started)
            raise
        self.health.record_success(time.monotonic() - started)
        return response

    async def _post(self, client: httpx.AsyncClient, content: bytes) -> httpx.Response:
        """Send a request body. Raises TemporaryFailure without a response."""
        try:
            # The timeouts of httpx apply to each read: a slow trickle of bytes would never end.
            return await asyncio.wait_for(
                request_within(
                    client, MAX_BYTES, "POST", self.url, content=content, headers=self.headers
                ),
                self._timeout,
            )
        except ResponseTooLarge as error:
            raise TemporaryFailure(str(error), is_unusable=True) from None
        except asyncio.TimeoutError:
            raise TemporaryFailure(f"no answer within {self._timeout:g} s") from None
        except self._httpx.RequestError as error:
            message = self.shorten(str(error))
            raise TemporaryFailure(f"{type(error).__name__}: {message}") from error

    def _read(self, response: httpx.Response) -> ChatResponse:
        """Return the content of a response. Raises TemporaryFailure or FinalFailure."""
        self._check_status(response)
        try:
            completion = msgspec.json.decode(response.content, type=_Completion)
            choice = completion.choices[0]
        except (IndexError, *UNDECODABLE) as error:
            text = self.shorten(_text_of(response))
            # A gateway can answer with a page, and a connection can end within the JSON.
            is_json = isinstance(error, (IndexError, msgspec.ValidationError))
            raise TemporaryFailure(f"not a chat completion: {text}", is_unusable=is_json) from None
        counts = completion.usage or _TokenCounts()
        return ChatResponse(
            text=choice.message.content or "",
            refusal=choice.message.refusal or "",
            is_truncated=choice.finish_reason == "length",
            prompt_tokens=_count(counts.prompt_tokens),
            completion_tokens=_count(counts.completion_tokens),
            is_counted=completion.usage is not None,
        )

    def shorten(self, text: str) -> str:
        """Return a text for a message: short, on one line, and without the key."""
        key = self.headers.get("authorization", "").removeprefix("Bearer ")
        return shorten(text.replace(key, "***") if key else text, 200)

    def _check_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == 200:
            return
        message = f"HTTP {status}: {self.shorten(error_message(response.content))}"
        if is_temporary(status):
            if "insufficient_quota" in _text_of(response):
                raise FinalFailure(message, affects_all=True)
            wait = retry_after_seconds(response.headers.get("retry-after"))
            raise TemporaryFailure(message, wait, is_postponed=status == 429)
        hint = _HINTS.get(status, _REDIRECT if 300 <= status < 400 else "")
        raise FinalFailure(f"{message} ({hint})" if hint else message, affects_all=bool(hint))

    def _chat_url(self, base_url: str) -> httpx.URL:
        expected = (
            'base_url must be an address such as "http://localhost:8000/v1", without a user or a '
            "password; give the key as api_key"
        )
        check("@" not in base_url, expected)
        try:
            url = self._httpx.URL(base_url)
        except self._httpx.InvalidURL as error:
            raise UsageError(f"judge: {expected} ({error})") from error
        check(url.scheme in ("http", "https") and url.host != "", expected)
        chat_url: httpx.URL = url.copy_with(path=url.path.rstrip("/") + "/chat/completions")
        return chat_url


def check(is_valid: bool, message: str) -> None:
    """Raise UsageError with this message unless an argument of the judge is valid."""
    if not is_valid:
        raise UsageError(f"judge: {message}")


def _import_httpx() -> Any:
    with needs_extra("judge", "httpx"):
        import httpx
    return httpx


def _find_key(api_key: str | None, *, is_secure: bool) -> str | None:
    """Return the key. The one for OpenAI is not sent over an unencrypted connection."""
    if api_key is not None:
        return api_key.strip() or None
    key = os.environ.get("RAG_REWARDS_JUDGE_KEY", "").strip()
    if not key and is_secure:
        key = os.environ.get("OPENAI_API_KEY", "").strip()
    return key or None


def _headers(key: str | None) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if key is not None:
        check(
            key.isascii() and key.isprintable(),
            "api_key must contain printable ASCII characters only",
        )
        headers["authorization"] = f"Bearer {key}"
    return headers


def _count(tokens: int | None) -> int:
    """Return the number of tokens that a server reports, 0 for an impossible one."""
    return tokens if tokens is not None and 0 <= tokens <= _MAX_TOKENS else 0


def _text_of(response: httpx.Response) -> str:
    """Return the body as text. The charset that a server reports may be invalid."""
    return response.content.decode("utf-8", "replace")
