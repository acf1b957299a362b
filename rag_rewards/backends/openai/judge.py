"""A judge on any server with OpenAI's `/chat/completions` endpoint."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rag_rewards.backends.entity_prompts import entity_messages, parse_entities
from rag_rewards.backends.judge_prompts import PROMPT_VERSION, judge_messages, parse_verdict
from rag_rewards.backends.openai.chat import (
    RETRIES_OF_UNUSABLE,
    ChatEndpoint,
    ChatResponse,
    FinalFailure,
    TemporaryFailure,
    check,
)
from rag_rewards.backends.openai.rate_limit import RateLimit
from rag_rewards.backends.openai.usage import JudgeUsage, UsageCounter
from rag_rewards.backends.verdict_cache import (
    BackgroundCache,
    CacheFaults,
    Entry,
    VerdictCache,
    cache_key,
)
from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import Entities, EntityQuestion, JudgeQuestion
from rag_rewards.shorten import shorten

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("rag_rewards")
OPENAI = "https://api.openai.com/v1"
Question = JudgeQuestion | EntityQuestion
_Answer = TypeVar("_Answer")
_MAX_FAILURES = 32
"""Number of consecutive questions without a verdict after which no further question is sent."""
_MAX_BACKOFF_S = 30.0
_RESERVED_FIELDS = frozenset({"model", "messages", "temperature", "max_tokens", "stream", "n"})


class OpenAIJudge:
    """A judge on a chat model over HTTP (the protocol `Judge`).

    model, base_url   name of the model at the server, and the address before /chat/completions
    api_key           default: RAG_REWARDS_JUDGE_KEY, or (only over https) OPENAI_API_KEY; a local
                      server needs none
    temperature       temperature of all votes, or one temperature for each; None for the default
                      of the server
    max_tokens        maximum number of tokens of a response; None for the default of the server.
                      A truncated response has no verdict
    swapped           put the response before the gold answers, and reverse the order of these
    votes             odd number of votes; the majority decides, and no more votes than it needs
                      are requested
    extra             further fields of the request body, such as {"reasoning_effort": "low"}
    concurrency       maximum number of simultaneous requests, for all calls on one event loop
    requests_per_minute, tokens_per_minute
                      rate limits, spread evenly with bursts of one second; tokens are estimated
                      before a request, and corrected by the count of the server
    timeout           seconds for one request
    deadline          seconds for one call of `judge`; None for no limit
    retries           number of further attempts after a status 408, 425, 429 or 5xx, a connection
                      error, a timeout or a response without a verdict; Retry-After is respected
    backoff           seconds before the first retry; doubles for each retry, times 0.5 to 1
    cache             a `VerdictCache` or its file. The address is not part of the keys: another
                      server of the same model has the same verdicts
    prices            price of a million prompt tokens, and of a million completion tokens

    The result of a question without a verdict is a BackendError. If a response shows that no
    question can succeed (an invalid key, an unknown model), or after 32 consecutive questions
    without a verdict, the remaining questions are not sent and result in a BackendError as well.

    Raises UsageError for invalid arguments, and MissingExtraError if httpx is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI,
        api_key: str | None = None,
        temperature: float | Sequence[float] | None = 0.0,
        max_tokens: int | None = 1024,
        swapped: bool = False,
        votes: int = 1,
        extra: Mapping[str, Any] | None = None,
        concurrency: int = 64,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        timeout: float = 60.0,
        deadline: float | None = 600.0,
        retries: int = 5,
        backoff: float = 0.5,
        cache: VerdictCache | str | Path | None = None,
        prices: tuple[float, float] | None = None,
    ) -> None:
        check(model.strip() != "", "model must be the name of a model, found an empty string")
        check(votes >= 1 and votes % 2 == 1, f"votes must be an odd number, found {votes}")
        check(concurrency >= 1, f"concurrency must be at least 1, found {concurrency}")
        check(
            max_tokens is None or max_tokens >= 1,
            f"max_tokens must be at least 1, found {max_tokens}",
        )
        check(retries >= 0, f"retries must be at least 0, found {retries}")
        check(backoff >= 0, f"backoff must be at least 0, found {backoff}")
        for name, value in (
            ("timeout", timeout),
            ("deadline", deadline),
            ("requests_per_minute", requests_per_minute),
            ("tokens_per_minute", tokens_per_minute),
        ):
            check(value is None or value > 0, f"{name} must be greater than 0, found {value}")
        self.model = model
        self._endpoint = ChatEndpoint(base_url, api_key, timeout)
        self._temperatures = _temperatures(temperature, votes)
        self._constant_fields = _constant_fields(model, max_tokens, extra)
        self._extra = dict(extra or {})
        self._swapped = swapped
        self._concurrency = concurrency
        self._request_limit = RateLimit(requests_per_minute)
        self._token_limit = RateLimit(tokens_per_minute)
        self._deadline = deadline
        self._retries, self._backoff = retries, backoff
        self._cache = VerdictCache(cache) if isinstance(cache, (str, Path)) else cache
        self.prices = prices
        self._counter = UsageCounter(prices)
        self._shared: dict[asyncio.AbstractEventLoop, _SharedState] = {}
        # Time of the monotonic clock before which no request is sent, because of a Retry-After.
        self._not_before = 0.0

    def __repr__(self) -> str:
        return f"<OpenAIJudge {self.fingerprint} at {self._endpoint.shown_url}>"

    @property
    def fingerprint(self) -> str:
        """Everything that affects a verdict: "openai:MODEL prompt=1 votes=1 temperature=0"."""
        votes = len(self._temperatures)
        same = len(set(self._temperatures)) == 1
        distinct = self._temperatures[:1] if same else self._temperatures
        temperature = ",".join("default" if t is None else f"{t:g}" for t in distinct)
        extra = f" extra={_canonical(self._extra)}" if self._extra else ""
        extra += " swapped" if self._swapped else ""
        return (
            f"openai:{self.model} prompt={PROMPT_VERSION} votes={votes} "
            f"temperature={temperature}{extra}"
        )

    @property
    def usage(self) -> JudgeUsage:
        """Requests, tokens, cost and latency since the construction."""
        return self._counter.usage()

    async def judge(self, questions: Sequence[JudgeQuestion]) -> list[int | Exception]:
        """Return 0, 1 or an error for each question, in order. Equal questions are sent once."""
        return await self._answer_each(questions, self._majority)

    async def entities(self, questions: Sequence[EntityQuestion]) -> list[Entities | Exception]:
        """Return the names or an error for each question, in order.

        With several votes, a name counts if more than half of the votes state it.
        """
        return await self._answer_each(questions, self._common_names)

    async def close(self) -> None:
        """Do nothing: no connection is kept open between calls."""

    # --- one call ------------------------------------------------------------------------------

    async def _answer_each(
        self,
        questions: Sequence[Question],
        answer: Callable[[_Call, Any], Awaitable[_Answer]],
    ) -> list[_Answer | Exception]:
        """Return an answer or an error for each question, in order."""
        if not questions:
            return []
        shared = self._enter()
        try:
            answers = await self._answer_all(shared, list(dict.fromkeys(questions)), answer)
        finally:
            await self._leave(shared)
        return [answers[question] for question in questions]

    async def _answer_all(
        self,
        shared: _SharedState,
        questions: list[Question],
        answer: Callable[[_Call, Any], Awaitable[_Answer]],
    ) -> dict[Question, _Answer | Exception]:
        """Answer distinct questions, with one task for each simultaneous request."""
        answers: dict[Question, _Answer | Exception] = {}
        call = _Call(shared)
        await self._prepare(call, questions, answers)
        call.deadline = math.inf if self._deadline is None else time.monotonic() + self._deadline
        waiting = iter(call.keys)

        async def work() -> None:
            for question in waiting:
                try:
                    answers[question] = await answer(call, question)
                except BackendError as error:
                    answers[question] = error.with_traceback(None)  # its frames keep objects alive

        size = min(self._concurrency, len(call.keys))
        workers = [asyncio.ensure_future(work()) for _ in range(size)]
        try:
            if workers:
                await asyncio.wait(workers, timeout=self._deadline)
        finally:
            call.deadline = -math.inf  # before Python 3.12, wait_for can lose a cancellation
            done = [worker for worker in workers if worker.done()]
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        for worker in done:
            worker.result()  # raises unexpected exceptions, which are bugs
        for question in call.keys:
            if question not in answers:
                answers[question] = self._error(question, self._deadline_message())
        self._counter.failures += sum(isinstance(a, Exception) for a in answers.values())
        return answers

    async def _prepare(
        self,
        call: _Call,
        questions: list[Question],
        answers: dict[Question, _Answer | Exception],
    ) -> None:
        """Compute the cache key of each vote, and read all of them from the cache at once."""
        for question in questions:
            try:
                call.keys[question] = [
                    self._key(question, vote) for vote in range(len(self._temperatures))
                ]
            except UsageError as error:
                answers[question] = error
        if call.shared.cache:
            keys = chain.from_iterable(call.keys.values())
            call.cached = await call.shared.cache.get(keys)

    def _deadline_message(self) -> str:
        return f"no verdict within the deadline of {self._deadline} s"

    async def _majority(self, call: _Call, question: JudgeQuestion) -> int:
        """Request votes one after the other, until one verdict has more than half of them."""
        counts = [0, 0]
        while True:
            verdict = int((await self._vote(call, question, sum(counts))).verdict or 0)
            counts[verdict] += 1
            if 2 * counts[verdict] > len(self._temperatures):
                return verdict

    async def _common_names(self, call: _Call, question: EntityQuestion) -> Entities:
        """Return the names that more than half of the votes state."""
        votes = len(self._temperatures)
        entries = [await self._vote(call, question, vote) for vote in range(votes)]
        names: dict[str, str | None] = {}
        for placeholder in question.placeholders:
            stated = Counter((entry.entities or {}).get(placeholder) for entry in entries)
            name, count = stated.most_common(1)[0]
            names[placeholder] = name if 2 * count > votes else None
        return names

    async def _vote(self, call: _Call, question: Question, vote: int) -> Entry:
        key = call.keys[question][vote]
        entry = call.cached.get(key)
        if entry is None:
            entry = await self._request_vote(call, question, self._body(question, vote))
            if call.shared.cache:
                call.shared.cache.put(key, entry)
        else:
            self._counter.cache_hits += 1
            self._counter.cached_prompt_tokens += entry.prompt_tokens
            self._counter.cached_completion_tokens += entry.completion_tokens
        self._counter.verdicts += 1
        return entry

    def _body(self, question: Question, vote: int) -> dict[str, Any]:
        if isinstance(question, EntityQuestion):
            messages = entity_messages(question)
        else:
            messages = judge_messages(question, swapped=self._swapped)
        body = {**self._constant_fields, "messages": messages}
        temperature = self._temperatures[vote]
        return body if temperature is None else {**body, "temperature": temperature}

    def _key(self, question: Question, vote: int) -> bytes:
        return cache_key(prompt=PROMPT_VERSION, vote=vote, request=self._body(question, vote))

    # --- one vote ------------------------------------------------------------------------------

    async def _request_vote(self, call: _Call, question: Question, body: dict[str, Any]) -> Entry:
        """Repeat a request until it has a verdict, or attempts or time are exhausted."""
        content = msgspec.json.encode(body, order="sorted")
        attempt = 0
        try:
            while True:
                attempt += 1
                try:
                    entry = await self._attempt(call, question, content)
                except TemporaryFailure as failure:
                    await self._wait_before_retry(call, attempt, failure)
                else:
                    call.shared.failures = 0
                    return entry
        except FinalFailure as failure:
            call.shared.add_failure(failure)
            raise self._error(question, str(failure)) from None

    async def _wait_before_retry(
        self, call: _Call, attempt: int, failure: TemporaryFailure
    ) -> None:
        """Wait for the next attempt. Raises FinalFailure if there is none."""
        attempts = 1 + min(self._retries, failure.retries)
        if attempt >= attempts:
            raise FinalFailure(f"{failure} (attempt {attempt} of {attempts})") from failure
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 (not a secret)
        backoff = min(self._backoff * 2.0 ** (attempt - 1), _MAX_BACKOFF_S) * jitter
        wait = max(backoff, failure.wait)
        if time.monotonic() + wait > call.deadline:
            raise FinalFailure(
                f"{failure}; the next attempt would be after the deadline"
            ) from failure
        await asyncio.sleep(wait)

    async def _attempt(self, call: _Call, question: Question, content: bytes) -> Entry:
        """Send one request. Raises TemporaryFailure or FinalFailure."""
        shared = call.shared
        tokens = len(content) // 4 + self._constant_fields.get("max_tokens", 0)
        async with shared.slots:
            await self._wait_for_limits(call, tokens)
            client = shared.idle.pop() if shared.idle else self._endpoint.new_client()
            try:
                response = await self._post(client, content)
            finally:
                shared.idle.append(client)
        try:
            chat_response = self._endpoint.read(response)
        except TemporaryFailure as failure:
            self._not_before = max(self._not_before, time.monotonic() + failure.wait)
            raise
        return self._entry(chat_response, question, tokens)

    async def _wait_for_limits(self, call: _Call, tokens: int) -> None:
        """Wait until the rate limits and the Retry-After of the server allow a request."""
        self._check_open(call)
        now = time.monotonic()
        wait = max(self._request_limit.take(1, now), self._token_limit.take(tokens, now))
        await _sleep_until(now + wait)
        while (until := self._not_before) > time.monotonic():
            if until > call.deadline:
                raise FinalFailure("the server requests a wait that ends after the deadline")
            await _sleep_until(until)
        self._check_open(call)

    def _check_open(self, call: _Call) -> None:
        if call.shared.abandoned is not None:
            raise FinalFailure(f"not sent: {call.shared.abandoned}")
        if time.monotonic() > call.deadline:
            raise FinalFailure(self._deadline_message())

    async def _post(self, client: httpx.AsyncClient, content: bytes) -> httpx.Response:
        self._counter.requests += 1
        start = time.monotonic()
        try:
            return await self._endpoint.post(client, content)
        finally:
            self._counter.add_latency(time.monotonic() - start)

    def _entry(self, response: ChatResponse, question: Question, tokens: int) -> Entry:
        """Return the verdict of a response. `tokens` is the estimate for the token limit."""
        prompt, completion = response.prompt_tokens, response.completion_tokens
        self._counter.prompt_tokens += prompt
        self._counter.completion_tokens += completion
        if response.is_counted:
            self._token_limit.give_back(tokens - prompt - completion)
        text = response.text
        if response.is_truncated:
            end = self._endpoint.shorten(text[-99:])
            raise TemporaryFailure(f"cut off at max_tokens: …{end}", retries=RETRIES_OF_UNUSABLE)
        if isinstance(question, EntityQuestion):
            entities = parse_entities(text, question.placeholders)
            if entities is not None:
                return Entry(None, prompt, completion, text, dict(entities))
        elif (verdict := parse_verdict(text, question.kind)) is not None:
            return Entry(1 if verdict else 0, prompt, completion, text)
        content = self._endpoint.shorten(text or response.refusal or "nothing")
        wanted = "names" if isinstance(question, EntityQuestion) else "verdict"
        raise TemporaryFailure(f"no {wanted} in {content!r}", retries=RETRIES_OF_UNUSABLE)

    def _error(self, question: Question, message: str) -> BackendError:
        kind = "entity" if isinstance(question, EntityQuestion) else question.kind
        return BackendError(
            f"judge {self.model} at {self._endpoint.shown_url}, {kind} question "
            f"{shorten(question.question, 60)!r}: {message}"
        )

    # --- state of simultaneous calls -----------------------------------------------------------

    def _enter(self) -> _SharedState:
        loop = asyncio.get_running_loop()
        shared = self._shared.get(loop)
        if shared is None:
            slots = asyncio.Semaphore(self._concurrency)
            cache = BackgroundCache(self._cache) if self._cache else None
            shared = self._shared[loop] = _SharedState(slots, cache)
        shared.calls += 1
        return shared

    async def _leave(self, shared: _SharedState) -> None:
        shared.calls -= 1
        if shared.calls:
            return
        del self._shared[asyncio.get_running_loop()]
        try:
            if shared.cache:
                await shared.cache.close()
                self._report(shared.cache.faults)
        finally:
            for client in shared.idle:
                await client.aclose()

    def _report(self, faults: CacheFaults) -> None:
        """Count the faults of the cache, and log the first ones."""
        if faults.total and not self._counter.cache_faults and self._cache:
            log.warning(
                "the judge's cache %s: %d verdicts could not be read, %d could not be written, %d "
                "were damaged%s; these verdicts are requested again, and further faults are only "
                "counted",
                self._cache.path,
                faults.unread,
                faults.unwritten,
                faults.damaged,
                f" ({faults.reason})" if faults.reason else "",
            )
        self._counter.cache_faults += faults.total


@dataclass
class _SharedState:
    """State of the simultaneous calls on one event loop. It ends with the last of them.

    slots      limit of simultaneous requests
    cache      the cache of verdicts, if there is one
    idle       HTTP clients without a request
    calls      number of calls in progress
    failures   number of consecutive questions without a verdict
    abandoned  reason why no further question is sent
    """

    slots: asyncio.Semaphore
    cache: BackgroundCache | None
    idle: list[httpx.AsyncClient] = field(default_factory=list)
    calls: int = 0
    failures: int = 0
    abandoned: str | None = None

    def add_failure(self, failure: FinalFailure) -> None:
        """Count a question without a verdict."""
        self.failures += 1
        if self.abandoned is None and failure.affects_all:
            self.abandoned = str(failure)
        elif self.abandoned is None and self.failures >= _MAX_FAILURES:
            self.abandoned = (
                f"{self.failures} questions in a row had no verdict; the last failure: {failure}"
            )


@dataclass
class _Call:
    """One call of `judge`: its deadline, the cache keys of its votes, and the cached votes."""

    shared: _SharedState
    deadline: float = math.inf
    keys: dict[Question, list[bytes]] = field(default_factory=dict)
    cached: dict[bytes, Entry] = field(default_factory=dict)


def _temperatures(
    temperature: float | Sequence[float] | None, votes: int
) -> tuple[float | None, ...]:
    """Return one temperature per vote. Two votes at temperature 0 would be the same vote."""
    if temperature is None or isinstance(temperature, (int, float)):
        each: tuple[float | None, ...] = (temperature,) * votes
    else:
        each = tuple(temperature)
    check(
        len(each) == votes,
        f"temperature must have one value per vote ({votes}), found {len(each)}",
    )
    check(
        all(t is None or (t >= 0 and math.isfinite(t)) for t in each),
        f"temperature must be a number of at least 0, found {temperature}",
    )
    check(
        each.count(0) <= 1,
        f"{votes} votes at temperature 0 are the same vote: increase the temperature",
    )
    return each


def _constant_fields(
    model: str, max_tokens: int | None, extra: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the fields that all requests have in common."""
    extra = dict(extra or {})
    reserved = sorted(_RESERVED_FIELDS & extra.keys())
    check(not reserved, f"extra must not contain {', '.join(reserved)}")
    try:
        _canonical(extra)
    except (TypeError, ValueError) as error:
        raise UsageError(f"judge: extra cannot be encoded as JSON: {error}") from error
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    return {**extra, **limit, "model": model}


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


async def _sleep_until(moment: float) -> None:
    if (wait := moment - time.monotonic()) > 0:
        await asyncio.sleep(wait)
