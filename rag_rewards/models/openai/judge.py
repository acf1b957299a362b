"""A judge on any server with OpenAI's `/chat/completions` endpoint."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import Entities, EntityQuestion, JudgeQuestion
from rag_rewards.models.entity_prompts import entity_messages
from rag_rewards.models.health import Health
from rag_rewards.models.judge_fences import code_of
from rag_rewards.models.judge_prompts import PROMPT_VERSION, judge_messages
from rag_rewards.models.openai.arguments import canonical, constant_fields, temperatures_of
from rag_rewards.models.openai.calls import Call, Question, SharedState
from rag_rewards.models.openai.chat import ChatEndpoint, check
from rag_rewards.models.openai.rate_limit import RateLimit
from rag_rewards.models.openai.sender import RequestSender
from rag_rewards.models.openai.usage import JudgeUsage, UsageCounter
from rag_rewards.models.verdict_cache import (
    BackgroundCache,
    CacheFaults,
    Entry,
    VerdictCache,
    cache_key,
)

log = logging.getLogger("rag_rewards")
OPENAI = "https://api.openai.com/v1"
_Answer = TypeVar("_Answer")


class OpenAIJudge:
    """A judge on a chat model over HTTP (the protocol `Judge`).

    model, base_url   name of the model at the server, and the address before /chat/completions
    api_key           default: RAG_REWARDS_JUDGE_KEY, or (only over https) OPENAI_API_KEY; a local
                      server needs none
    temperature       temperature of all votes, or one temperature for each; None for the default
                      of the server
    max_tokens        maximum number of tokens of a response; None for the default of the server.
                      A truncated response has no verdict
    swapped           put the response before the documents and the gold answers, and reverse the
                      order of these
    marked            mark each line of a text in the prompt, and require the code of the prompt in
                      the response
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
                      error, a timeout or a response without a verdict; Retry-After is respected.
                      A 429 is no failed attempt while the server answers other requests
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
        marked: bool = False,
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
        self._temperatures = temperatures_of(temperature, votes)
        self._constant_fields = constant_fields(model, max_tokens, extra)
        self._extra = dict(extra or {})
        self._swapped, self._marked = swapped, marked
        self._concurrency = concurrency
        self._deadline = deadline
        self._cache = VerdictCache(cache) if isinstance(cache, (str, Path)) else cache
        self.prices = prices
        self._counter = UsageCounter(prices)
        self._shared: dict[asyncio.AbstractEventLoop, SharedState] = {}
        self._sender = RequestSender(
            self._endpoint,
            model,
            self._counter,
            RateLimit(requests_per_minute),
            RateLimit(tokens_per_minute),
            deadline,
            retries,
            backoff,
        )

    def __repr__(self) -> str:
        return f"<OpenAIJudge {self.fingerprint} at {self._endpoint.shown_url}>"

    @property
    def fingerprint(self) -> str:
        """Everything that affects a verdict: "openai:MODEL prompt=1 votes=1 temperature=0"."""
        votes = len(self._temperatures)
        same = len(set(self._temperatures)) == 1
        distinct = self._temperatures[:1] if same else self._temperatures
        temperature = ",".join("default" if t is None else f"{t:g}" for t in distinct)
        extra = f" extra={canonical(self._extra)}" if self._extra else ""
        extra += " swapped" * self._swapped + " marked" * self._marked
        return (
            f"openai:{self.model} prompt={PROMPT_VERSION} votes={votes} "
            f"temperature={temperature}{extra}"
        )

    @property
    def health(self) -> Health:
        """The health of the endpoint."""
        return self._endpoint.health

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
        answer: Callable[[Call, Any], Awaitable[_Answer]],
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
        shared: SharedState,
        questions: list[Question],
        answer: Callable[[Call, Any], Awaitable[_Answer]],
    ) -> dict[Question, _Answer | Exception]:
        """Answer distinct questions, with one task for each simultaneous request."""
        answers: dict[Question, _Answer | Exception] = {}
        call = Call(shared)
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
                answers[question] = self._sender.error(question, self._sender.deadline_message)
        self._counter.add(failures=sum(isinstance(a, Exception) for a in answers.values()))
        return answers

    async def _prepare(
        self,
        call: Call,
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

    async def _majority(self, call: Call, question: JudgeQuestion) -> int:
        """Request votes one after the other, until one verdict has more than half of them."""
        counts = [0, 0]
        while True:
            verdict = int((await self._vote(call, question, sum(counts))).verdict or 0)
            counts[verdict] += 1
            if 2 * counts[verdict] > len(self._temperatures):
                return verdict

    async def _common_names(self, call: Call, question: EntityQuestion) -> Entities:
        """Return the names that more than half of the votes state."""
        votes = len(self._temperatures)
        entries = [await self._vote(call, question, vote) for vote in range(votes)]
        names: dict[str, str | None] = {}
        for placeholder in question.placeholders:
            stated = Counter((entry.entities or {}).get(placeholder) for entry in entries)
            name, count = stated.most_common(1)[0]
            names[placeholder] = name if 2 * count > votes else None
        return names

    async def _vote(self, call: Call, question: Question, vote: int) -> Entry:
        key = call.keys[question][vote]
        entry = call.cached.get(key)
        if entry is None:
            body = self._body(question, vote)
            code = code_of(body["messages"]) if self._marked else ""
            entry = await self._sender.request_vote(call, question, body, code)
            if call.shared.cache:
                call.shared.cache.put(key, entry)
        else:
            self._counter.add(
                cache_hits=1,
                cached_prompt_tokens=entry.prompt_tokens,
                cached_completion_tokens=entry.completion_tokens,
            )
        self._counter.add(verdicts=1)
        return entry

    def _body(self, question: Question, vote: int) -> dict[str, Any]:
        if isinstance(question, EntityQuestion):
            messages = entity_messages(question, marked=self._marked)
        else:
            swapped = self._swapped != question.swapped
            messages = judge_messages(question, swapped=swapped, marked=self._marked)
        body = {**self._constant_fields, "messages": messages}
        temperature = self._temperatures[vote]
        return body if temperature is None else {**body, "temperature": temperature}

    def _key(self, question: Question, vote: int) -> bytes:
        return cache_key(prompt=PROMPT_VERSION, vote=vote, request=self._body(question, vote))

    # --- state of simultaneous calls -----------------------------------------------------------

    def _enter(self) -> SharedState:
        loop = asyncio.get_running_loop()
        shared = self._shared.get(loop)
        if shared is None or shared.abandoned is not None:
            # Calls that start after the failure ask the server again.
            slots = asyncio.Semaphore(self._concurrency)
            cache = BackgroundCache(self._cache) if self._cache else None
            shared = self._shared[loop] = SharedState(slots, cache)
        shared.calls += 1
        return shared

    async def _leave(self, shared: SharedState) -> None:
        shared.calls -= 1
        if shared.calls:
            return
        loop = asyncio.get_running_loop()
        if self._shared.get(loop) is shared:
            del self._shared[loop]
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
        self._counter.add(cache_faults=faults.total)
