"""Requests of a judge: their rate limits, their retries, and the verdicts in their responses."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from rag_rewards.errors import BackendError, shorten
from rag_rewards.evidence.protocols import EntityQuestion
from rag_rewards.models.entity_prompts import parse_entities
from rag_rewards.models.judge_prompts import parse_verdict
from rag_rewards.models.openai.calls import Call, Question
from rag_rewards.models.openai.chat import (
    RETRIES_OF_UNUSABLE,
    ChatEndpoint,
    ChatResponse,
    FinalFailure,
    TemporaryFailure,
)
from rag_rewards.models.openai.rate_limit import RateLimit
from rag_rewards.models.openai.usage import UsageCounter
from rag_rewards.models.verdict_cache import Entry

if TYPE_CHECKING:
    import httpx

_MAX_BACKOFF_S = 30.0


@dataclass
class RequestSender:
    """Sends requests within the rate limits, and repeats those without a verdict.

    endpoint  address of the chat model
    model     name of the model, for errors
    counter   counter of requests, tokens and latencies
    request_limit, token_limit  rates that requests must not exceed
    deadline  seconds for one call of the judge, for errors; None for no limit
    retries, backoff  as in `OpenAIJudge`
    """

    endpoint: ChatEndpoint
    model: str
    counter: UsageCounter
    request_limit: RateLimit
    token_limit: RateLimit
    deadline: float | None
    retries: int
    backoff: float

    async def request_vote(
        self, call: Call, question: Question, body: dict[str, Any], code: str = ""
    ) -> Entry:
        """Repeat a request until it has a verdict, or attempts or time are exhausted.

        `code` is the code that the verdict must have. Raises BackendError without a verdict.
        """
        content = msgspec.json.encode(body, order="sorted")
        tokens = len(content) // 4 + body.get("max_tokens", 0)
        attempt = unusable = answers = 0
        try:
            while True:
                # A request that the server postponed while it answered others is no failed
                # attempt: the rate of the server is lower than that of the requests.
                attempt += 1
                try:
                    response = await self._attempt(call, content, tokens)
                    entry = self._entry(response, question, tokens, code)
                except TemporaryFailure as failure:
                    if failure.is_postponed and call.shared.answers > answers:
                        attempt = 1
                    answers = call.shared.answers
                    unusable += failure.is_unusable
                    if (refusal := self.endpoint.health.unavailable) is not None:
                        raise refusal from None
                    if attempt > self.retries or unusable > RETRIES_OF_UNUSABLE:
                        number = "once" if attempt == 1 else f"{attempt} times"
                        raise FinalFailure(f"{failure} (tried {number})") from failure
                    await self._wait_before_retry(call, attempt, failure)
                else:
                    call.shared.add_answer()
                    return entry
        except FinalFailure as failure:
            call.shared.add_failure(failure)
            raise self.error(question, str(failure)) from None

    def error(self, question: Question, message: str) -> BackendError:
        """Return the error of a question without a verdict."""
        kind = "entity" if isinstance(question, EntityQuestion) else question.kind
        return BackendError(
            f"judge {self.model} at {self.endpoint.shown_url}, {kind} question "
            f"{shorten(question.question, 60)!r}: {message}"
        )

    @property
    def deadline_message(self) -> str:
        """The reason of a question without a verdict at the deadline."""
        return f"no verdict within the deadline of {self.deadline} s"

    async def _wait_before_retry(self, call: Call, attempt: int, failure: TemporaryFailure) -> None:
        """Wait for the next attempt. Raises FinalFailure if it is after the deadline."""
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 (not a secret)
        backoff = min(self.backoff * 2.0 ** (attempt - 1), _MAX_BACKOFF_S) * jitter
        wait = max(backoff, failure.wait)
        if time.monotonic() + wait > call.deadline:
            raise FinalFailure(
                f"{failure}; the next attempt would be after the deadline"
            ) from failure
        await asyncio.sleep(wait)

    async def _attempt(self, call: Call, content: bytes, tokens: int) -> ChatResponse:
        """Send one request. Raises TemporaryFailure or FinalFailure.

        `tokens` is the estimate of its tokens for the token limit.
        """
        shared = call.shared
        async with shared.slots:
            await self._wait_for_limits(call, tokens)
            client = shared.idle.pop() if shared.idle else self.endpoint.new_client()
            try:
                return await self._complete(client, content, tokens)
            except TemporaryFailure as failure:
                call.not_before = max(call.not_before, time.monotonic() + failure.wait)
                raise
            finally:
                shared.idle.append(client)

    async def _wait_for_limits(self, call: Call, tokens: int) -> None:
        """Wait until the rate limits and the Retry-After of the server allow a request.

        A request that will not be sent uses nothing of the limits.
        """
        self._check_open(call)
        now = time.monotonic()
        wait = max(self.request_limit.take(1, now), self.token_limit.take(tokens, now))
        try:
            await _sleep_until(now + wait)
            while (until := call.not_before) > time.monotonic():
                if until > call.deadline:
                    raise FinalFailure("the server requests a wait that ends after the deadline")
                await _sleep_until(until)
            self._check_open(call)
        except BaseException:
            self.request_limit.give_back(1)
            self.token_limit.give_back(tokens)
            raise

    def _check_open(self, call: Call) -> None:
        if call.shared.abandoned is not None:
            raise FinalFailure(f"not sent: {call.shared.abandoned}")
        if time.monotonic() > call.deadline:
            raise FinalFailure(self.deadline_message)

    async def _complete(
        self, client: httpx.AsyncClient, content: bytes, tokens: int
    ) -> ChatResponse:
        """Send a request, and return its tokens to the limit if it has no response."""
        self.counter.add(requests=1)
        start = time.monotonic()
        try:
            return await self.endpoint.complete(client, content)
        except BaseException:
            self.token_limit.give_back(tokens)
            raise
        finally:
            self.counter.add_latency(time.monotonic() - start)

    def _entry(self, response: ChatResponse, question: Question, tokens: int, code: str) -> Entry:
        """Return the verdict of a response. Raises TemporaryFailure if there is none."""
        prompt, completion = response.prompt_tokens, response.completion_tokens
        self.counter.add(prompt_tokens=prompt, completion_tokens=completion)
        if response.is_counted:
            self.token_limit.give_back(tokens - prompt - completion)
        text = response.text
        if response.is_truncated:
            end = self.endpoint.shorten(text[-99:])
            raise TemporaryFailure(f"cut off at max_tokens: …{end}", is_unusable=True)
        if isinstance(question, EntityQuestion):
            entities = parse_entities(text, question.placeholders, code)
            if entities is not None:
                return Entry(None, prompt, completion, text, dict(entities))
        elif (verdict := parse_verdict(text, question.kind, code)) is not None:
            return Entry(1 if verdict else 0, prompt, completion, text)
        content = self.endpoint.shorten(text or response.refusal or "nothing")
        wanted = "names" if isinstance(question, EntityQuestion) else "verdict"
        raise TemporaryFailure(f"no {wanted} in {content!r}", is_unusable=True)


async def _sleep_until(moment: float) -> None:
    if (wait := moment - time.monotonic()) > 0:
        await asyncio.sleep(wait)
