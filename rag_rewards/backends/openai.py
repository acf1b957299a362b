"""A judge behind any server that speaks OpenAI's `/chat/completions`.

Built on httpx, not on the openai library: that takes three times the processor time a request
(benchmarks/judge.py --openai: 3.3 s against 1.1 s for 1,000), and its own retries would hide what
they cost. Rates are kept here and not by aiolimiter, whose limiters belong to one event loop:
trainers start a new loop for every batch, and a limit has to hold across them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rag_rewards.backends.addresses import without_credentials
from rag_rewards.backends.judge_prompts import PROMPT_VERSION, judge_messages, parse_verdict
from rag_rewards.backends.verdict_cache import (
    BackgroundCache,
    Entry,
    Faults,
    VerdictCache,
    cache_key,
)
from rag_rewards.errors import BackendError, MissingExtraError, UsageError
from rag_rewards.evidence.protocols import JudgeQuestion

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("rag_rewards")
OPENAI = "https://api.openai.com/v1"
_HOPELESS = 32
"""So many questions in a row without a verdict, and the others are not asked any more."""
_NONSENSE = 2  # retries of an answer without a verdict: at temperature 0 it often stays so
_LONGEST_BACKOFF_S = 30.0
_MOST_TOKENS = 1 << 40  # of one answer, as the server counts them
_LATENCIES = 10_000  # kept for the percentiles
_OURS = frozenset({"model", "messages", "temperature", "max_tokens", "stream", "n"})


@dataclass(frozen=True)
class JudgeUsage:
    """What a judge has done and cost since it was made.

    Tokens are the server's count, of answers that held no verdict too. `cost` is in the currency
    of `prices`, None without them. Latencies are seconds from sending a request to the end of its
    answer or to its failure, without waiting for limits; percentiles are of the last 10,000, all
    are 0 before the first.
    """

    verdicts: int = 0
    """Votes obtained, from the server or from the cache."""
    requests: int = 0
    cache_hits: int = 0
    cache_faults: int = 0
    """Votes that could not be read from the cache or written to it."""
    failures: int = 0
    """Questions that got no verdict."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    latency_mean: float = 0.0
    latency_p50: float = 0.0
    latency_p95: float = 0.0


class OpenAIJudge:
    """Asks a chat model over HTTP (`models.Judge`).

    model, base_url   the server's name for the model, and the address before /chat/completions
    api_key           else RAG_REWARDS_JUDGE_KEY, else (over https alone) OPENAI_API_KEY; servers
                      of your own need none
    temperature       of every vote, or one for each of them; None leaves it to the server
    max_tokens        of an answer; None leaves it to the server. What is cut off is no verdict
    votes             odd; the majority decides, and no more votes are taken than it needs
    extra             more fields of the request body, e.g. {"reasoning_effort": "low"}
    concurrency       requests at the same time, in all calls of one event loop together
    requests_per_minute, tokens_per_minute
                      spread evenly, with a burst of one second; tokens are estimated before a
                      request and corrected by the server's count
    timeout           seconds, of one request as a whole
    deadline          seconds, of one call of `judge` as a whole; None is no limit
    retries           further attempts after 408, 425, 429 and 5xx, cut connections, time-outs and
                      answers without a verdict; the server's Retry-After is kept
    backoff           seconds before the first retry, doubled for each one, times 0.5 to 1
    cache             a file of verdicts, see `VerdictCache`; the address is not part of its keys,
                      so another server of the same model finds the same verdicts
    prices            per million prompt tokens and per million completion tokens

    A question that got no verdict is answered by a BackendError; so are all others, without
    being asked, once an answer shows that none can succeed (a refused key, an unknown model) or
    32 questions in a row got none. Raises UsageError for values that cannot be, and
    MissingExtraError without httpx.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI,
        api_key: str | None = None,
        temperature: float | Sequence[float] | None = 0.0,
        max_tokens: int | None = 1024,
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
        _check(model.strip() != "", "model is a name")
        _check(votes >= 1 and votes % 2 == 1, f"votes is an odd number, not {votes}")
        _check(concurrency >= 1, f"concurrency is 1 or more, not {concurrency}")
        _check(max_tokens is None or max_tokens >= 1, f"max_tokens is 1 or more, not {max_tokens}")
        _check(retries >= 0 and backoff >= 0, "retries and backoff are 0 or more")
        for name, value in (
            ("timeout", timeout),
            ("deadline", deadline),
            ("requests_per_minute", requests_per_minute),
            ("tokens_per_minute", tokens_per_minute),
        ):
            _check(value is None or value > 0, f"{name} is above 0, not {value}")
        self.model = model
        self._httpx = _import_httpx()
        self._url = self._address(base_url)
        self._shown_url = without_credentials(str(self._url))
        self._headers = _headers(_find_key(api_key, secure=self._url.scheme == "https"))
        self._ssl: Any = None  # certificates take 20 ms to load: once, and for https alone
        self._temperatures = _temperatures(temperature, votes)
        self._fixed = _fixed_fields(model, max_tokens, extra)
        self._extra = dict(extra or {})
        self._concurrency = concurrency
        self._rates = (_Pace(requests_per_minute), _Pace(tokens_per_minute))
        self._timeout, self._deadline = timeout, deadline
        self._retries, self._backoff = retries, backoff
        self._cache = VerdictCache(cache) if isinstance(cache, (str, Path)) else cache
        self._tally = _Tally(prices)
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        self._not_before = 0.0  # of the monotonic clock: what a Retry-After asks of everybody

    def __repr__(self) -> str:
        return f"<OpenAIJudge {self.fingerprint} at {self._shown_url}>"

    @property
    def fingerprint(self) -> str:
        """All that decides a verdict: "openai:MODEL prompt=1 votes=1 temperature=0"."""
        votes = len(self._temperatures)
        same = len(set(self._temperatures)) == 1
        shown = self._temperatures[:1] if same else self._temperatures
        heat = ",".join("default" if t is None else f"{t:g}" for t in shown)
        extra = f" extra={_canonical(self._extra)}" if self._extra else ""
        return (
            f"openai:{self.model} prompt={PROMPT_VERSION} votes={votes} temperature={heat}{extra}"
        )

    @property
    def usage(self) -> JudgeUsage:
        return self._tally.usage()

    async def judge(self, questions: Sequence[JudgeQuestion]) -> list[int | Exception]:
        """0, 1 or an error for every question, in order. Equal questions are asked once."""
        if not questions:
            return []
        line = self._join()
        try:
            answers = await self._answer_all(line, list(dict.fromkeys(questions)))
        finally:
            await self._leave(line)
        return [answers[question] for question in questions]

    async def close(self) -> None:
        """Nothing is open between calls."""

    # --- one call ------------------------------------------------------------------------------

    async def _answer_all(
        self, line: _Line, questions: list[JudgeQuestion]
    ) -> dict[JudgeQuestion, int | Exception]:
        """One task for each request that may run, so that a long list costs no more tasks."""
        answers: dict[JudgeQuestion, int | Exception] = {}
        call = _Call(line)
        await self._prepare(call, questions, answers)
        call.ends = self._ends()
        waiting = iter(call.keys)

        async def work() -> None:
            for question in waiting:
                try:
                    answers[question] = await self._majority(call, question)
                except BackendError as error:
                    answers[question] = error.with_traceback(None)  # it would keep much alive

        size = min(self._concurrency, len(call.keys))
        workers = [asyncio.ensure_future(work()) for _ in range(size)]
        try:
            if workers:
                await asyncio.wait(workers, timeout=self._deadline)
        finally:
            call.ends = -math.inf  # before Python 3.12 wait_for may lose a cancellation
            done = [worker for worker in workers if worker.done()]
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        for worker in done:
            worker.result()  # raises what is our own mistake
        for question in call.keys:
            if question not in answers:
                answers[question] = self._error(question, self._too_late())
        self._tally.failures += sum(isinstance(a, Exception) for a in answers.values())
        return answers

    async def _prepare(
        self,
        call: _Call,
        questions: list[JudgeQuestion],
        answers: dict[JudgeQuestion, int | Exception],
    ) -> None:
        """The key of every vote, and in one go what the cache has for them."""
        for question in questions:
            try:
                call.keys[question] = [
                    self._key(question, vote) for vote in range(len(self._temperatures))
                ]
            except UsageError as error:
                answers[question] = error
        if call.line.store:
            call.known = await call.line.store.get(chain.from_iterable(call.keys.values()))

    def _ends(self) -> float:
        return math.inf if self._deadline is None else time.monotonic() + self._deadline

    def _too_late(self) -> str:
        return f"no verdict within the deadline of {self._deadline} s"

    async def _majority(self, call: _Call, question: JudgeQuestion) -> int:
        """Votes, one after the other, until one side has more than half of them."""
        counts = [0, 0]
        while True:
            verdict = await self._vote(call, question, sum(counts))
            counts[verdict] += 1
            if 2 * counts[verdict] > len(self._temperatures):
                return verdict

    async def _vote(self, call: _Call, question: JudgeQuestion, vote: int) -> int:
        key = call.keys[question][vote]
        entry = call.known.get(key)
        if entry is None:
            entry = await self._persist(call, question, self._body(question, vote))
            if call.line.store:
                call.line.store.put(key, entry)
        else:
            self._tally.cache_hits += 1
        self._tally.verdicts += 1
        return entry.verdict

    def _body(self, question: JudgeQuestion, vote: int) -> dict[str, Any]:
        body = {**self._fixed, "messages": judge_messages(question)}
        temperature = self._temperatures[vote]
        return body if temperature is None else {**body, "temperature": temperature}

    def _key(self, question: JudgeQuestion, vote: int) -> bytes:
        return cache_key(prompt=PROMPT_VERSION, vote=vote, request=self._body(question, vote))

    # --- one vote ------------------------------------------------------------------------------

    async def _persist(self, call: _Call, question: JudgeQuestion, body: dict[str, Any]) -> Entry:
        """Ask until there is a verdict, attempts or time are spent, or the answer is final."""
        content = msgspec.json.encode(body, order="sorted")
        attempt = 0
        try:
            while True:
                attempt += 1
                try:
                    entry = await self._attempt(call, question, content)
                except _Passing as fault:
                    await self._before_next(call, attempt, fault)
                else:
                    call.line.failures = 0
                    return entry
        except _Final as fault:
            call.line.failed(fault)
            raise self._error(question, str(fault)) from None

    async def _before_next(self, call: _Call, attempt: int, fault: _Passing) -> None:
        """Wait for the next attempt. Raises _Final where there is none."""
        attempts = 1 + min(self._retries, fault.retries)
        if attempt >= attempts:
            raise _Final(f"{fault} (attempt {attempt} of {attempts})") from fault
        wait = max(self._pause(attempt), fault.wait)
        if time.monotonic() + wait > call.ends:
            raise _Final(f"{fault}; the next attempt would be after the deadline") from fault
        await asyncio.sleep(wait)

    def _pause(self, attempt: int) -> float:
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 (spreads requests, keeps no secret)
        return float(min(self._backoff * 2.0 ** (attempt - 1), _LONGEST_BACKOFF_S) * jitter)

    async def _attempt(self, call: _Call, question: JudgeQuestion, content: bytes) -> Entry:
        """One request. Raises _Passing or _Final."""
        line = call.line
        tokens = len(content) // 4 + self._fixed.get("max_tokens", 0)
        async with line.slots:
            await self._wait_turn(call, tokens)
            client = line.idle.pop() if line.idle else self._new_client()
            try:
                response = await self._post(client, content)
            finally:
                line.idle.append(client)
        self._check_status(response)
        return self._read(response, question, tokens)

    async def _wait_turn(self, call: _Call, tokens: int) -> None:
        """Until the rates and the server's own requests to wait allow the next request."""
        self._check_open(call)
        requests_rate, tokens_rate = self._rates
        now = time.monotonic()
        wait = max(requests_rate.take(1, now), tokens_rate.take(tokens, now))
        await _sleep_until(now + wait)
        while (until := self._not_before) > time.monotonic():
            if until > call.ends:
                raise _Final("the server asks to wait for longer than the deadline allows")
            await _sleep_until(until)
        self._check_open(call)

    def _check_open(self, call: _Call) -> None:
        if call.line.hopeless is not None:
            raise _Final(f"not asked: {call.line.hopeless}")
        if time.monotonic() > call.ends:
            raise _Final(self._too_late())

    async def _post(self, client: httpx.AsyncClient, content: bytes) -> httpx.Response:
        self._tally.requests += 1
        start = time.monotonic()
        try:
            # httpx's own limits are per read: a trickle of bytes would never end.
            return await asyncio.wait_for(
                client.post(self._url, content=content, headers=self._headers), self._timeout
            )
        except asyncio.TimeoutError:
            raise _Passing(f"no answer within {self._timeout:g} s") from None
        except self._httpx.RequestError as error:
            raise _Passing(f"{type(error).__name__}: {self._shown(str(error))}") from error
        finally:
            self._tally.took(time.monotonic() - start)

    def _check_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == 200:
            return
        text = _text_of(response)
        what = f"HTTP {status}: {self._shown(_detail(text))}"
        if status in (408, 425, 429) or status >= 500:
            if "insufficient_quota" in text:
                raise _Final(what, everyone=True)
            wait = _retry_after(response.headers)
            self._not_before = max(self._not_before, time.monotonic() + wait)
            raise _Passing(what, wait)
        hint = _HINTS.get(status, _REDIRECT if 300 <= status < 400 else "")
        raise _Final(f"{what} ({hint})" if hint else what, everyone=bool(hint))

    def _read(self, response: httpx.Response, question: JudgeQuestion, tokens: int) -> Entry:
        try:
            answer = msgspec.json.decode(response.content, type=_Completion)
            choice = answer.choices[0]
        except (msgspec.MsgspecError, IndexError, UnicodeError, RecursionError):
            shown = self._shown(_text_of(response))
            raise _Passing(f"not a chat completion: {shown}", retries=_NONSENSE) from None
        used = answer.usage or _TokenCount()
        prompt, completion = _count(used.prompt_tokens), _count(used.completion_tokens)
        self._tally.prompt_tokens += prompt
        self._tally.completion_tokens += completion
        if answer.usage:
            self._rates[1].give_back(tokens - prompt - completion)
        text = choice.message.content or ""
        if choice.finish_reason == "length":
            raise _Passing(f"cut off at max_tokens: …{self._shown(text[-99:])}", retries=_NONSENSE)
        verdict = parse_verdict(text, question.kind)
        if verdict is None:
            said = text or choice.message.refusal or "nothing"
            raise _Passing(f"no verdict in {self._shown(said)!r}", retries=_NONSENSE)
        return Entry(1 if verdict else 0, prompt, completion, text)

    def _error(self, question: JudgeQuestion, what: str) -> BackendError:
        return BackendError(
            f"judge {self.model} at {self._shown_url}, {question.kind} question "
            f"{_short(question.question, 60)!r}: {what}"
        )

    def _shown(self, text: str) -> str:
        """What came, for a message: short, on one line, without our key."""
        key = self._headers.get("authorization", "").removeprefix("Bearer ")
        return _short(text.replace(key, "***") if key else text, 200)

    # --- what calls share ----------------------------------------------------------------------

    def _join(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            slots = asyncio.Semaphore(self._concurrency)
            store = BackgroundCache(self._cache) if self._cache else None
            line = self._lines[loop] = _Line(slots, store)
        line.calls += 1
        return line

    async def _leave(self, line: _Line) -> None:
        line.calls -= 1
        if line.calls:
            return
        del self._lines[asyncio.get_running_loop()]
        try:
            if line.store:
                await line.store.close()
                self._report(line.store.faults)
        finally:
            for client in line.idle:
                await client.aclose()

    def _report(self, faults: Faults) -> None:
        """Count the faults of the cache, and log the first of them."""
        if faults.total and not self._tally.cache_faults and self._cache:
            log.warning(
                "the judge's cache %s: %d verdicts could not be read, %d could not be written, %d "
                "were damaged%s; the judge is asked instead, and further faults are only counted",
                self._cache.path,
                faults.unread,
                faults.unwritten,
                faults.damaged,
                f" ({faults.reason})" if faults.reason else "",
            )
        self._tally.cache_faults += faults.total

    def _new_client(self) -> httpx.AsyncClient:
        """For one request at a time: httpx's pools look at all connections at every request."""
        if self._ssl is None:
            secure = self._url.scheme == "https"
            self._ssl = self._httpx.create_ssl_context() if secure else False
        client: httpx.AsyncClient = self._httpx.AsyncClient(verify=self._ssl, timeout=None)
        return client

    def _address(self, base_url: str) -> httpx.URL:
        expected = (
            'base_url must be an address such as "http://localhost:8000/v1", without a user or a '
            "password; give the key as api_key"
        )
        _check("@" not in base_url, expected)
        try:
            url = self._httpx.URL(base_url)
        except self._httpx.InvalidURL as error:
            raise UsageError(f"judge: {expected} ({error})") from error
        _check(url.scheme in ("http", "https") and url.host != "", expected)
        whole: httpx.URL = url.copy_with(path=url.path.rstrip("/") + "/chat/completions")
        return whole


# --- parts -------------------------------------------------------------------------------------


class _Passing(Exception):
    """An attempt failed; one of the next `retries` may succeed, after `wait` seconds or more."""

    def __init__(self, message: str, wait: float = 0.0, retries: float = math.inf) -> None:
        super().__init__(message)
        self.wait = wait
        self.retries = retries


class _Final(Exception):
    """No verdict for this question, or for `everyone`, and no sense in asking again."""

    def __init__(self, message: str, *, everyone: bool = False) -> None:
        super().__init__(message)
        self.everyone = everyone


@dataclass
class _Line:
    """What calls that run at the same time on one event loop share; gone with the last one."""

    slots: asyncio.Semaphore
    store: BackgroundCache | None
    idle: list[httpx.AsyncClient] = field(default_factory=list)
    calls: int = 0
    failures: int = 0
    hopeless: str | None = None

    def failed(self, fault: _Final) -> None:
        self.failures += 1
        if self.hopeless is None and fault.everyone:
            self.hopeless = str(fault)
        elif self.hopeless is None and self.failures >= _HOPELESS:
            self.hopeless = f"{self.failures} questions in a row got no verdict; the last: {fault}"


@dataclass
class _Call:
    """One call of `judge`: when it ends, the keys of each question's votes, what is known."""

    line: _Line
    ends: float = math.inf
    keys: dict[JudgeQuestion, list[bytes]] = field(default_factory=dict)
    known: dict[bytes, Entry] = field(default_factory=dict)


class _Pace:
    """A rate, spread evenly with a burst of one second, whichever loops its takers run on.

    >>> pace = _Pace(120)
    >>> [pace.take(1, now=10.0) for _ in range(5)]
    [0.0, 0.0, 0.5, 1.0, 1.5]
    """

    def __init__(self, per_minute: float | None) -> None:
        self._seconds_each = 60.0 / per_minute if per_minute else 0.0
        self._paid_until = 0.0

    def take(self, amount: float, now: float) -> float:
        """Seconds to wait before using an amount, which counts as used from now on.

        What is more than a second's worth may pass when nothing is owed; the next ones wait.
        """
        cost = amount * self._seconds_each
        start = max(self._paid_until, now)
        self._paid_until = start + cost
        return max(0.0, start + min(cost, 1.0) - 1.0 - now)

    def give_back(self, amount: float) -> None:
        """Part of what was taken and not used; negative where more was used."""
        self._paid_until -= amount * self._seconds_each


@dataclass
class _Tally:
    prices: tuple[float, float] | None
    verdicts: int = 0
    requests: int = 0
    cache_hits: int = 0
    cache_faults: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES))

    def took(self, seconds: float) -> None:
        self.seconds += seconds
        self.latencies.append(seconds)

    def usage(self) -> JudgeUsage:
        latencies = sorted(self.latencies)
        return JudgeUsage(
            verdicts=self.verdicts,
            requests=self.requests,
            cache_hits=self.cache_hits,
            cache_faults=self.cache_faults,
            failures=self.failures,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cost=self._cost(),
            latency_mean=self.seconds / self.requests if self.requests else 0.0,
            latency_p50=_percentile(latencies, 0.5),
            latency_p95=_percentile(latencies, 0.95),
        )

    def _cost(self) -> float | None:
        if self.prices is None:
            return None
        prompt, completion = self.prices
        return (self.prompt_tokens * prompt + self.completion_tokens * completion) / 1e6


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _TokenCount(msgspec.Struct):
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _TokenCount | None = None


_HINTS = {
    401: "check the key: api_key, RAG_REWARDS_JUDGE_KEY or OPENAI_API_KEY",
    402: "the account has no credit",
    404: "check the model's name and base_url",
    405: "check base_url",
}
"""Answers after which no other question needs to be asked, and what to do about them."""
_REDIRECT = "a redirect; give its target as base_url"


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UsageError(f"judge: {otherwise}")


def _import_httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise MissingExtraError("httpx", extra="judge") from None
    return httpx


def _find_key(given: str | None, *, secure: bool) -> str | None:
    """The key to send. One that was meant for OpenAI is not sent in clear."""
    if given is not None:
        return given.strip() or None
    key = os.environ.get("RAG_REWARDS_JUDGE_KEY", "").strip()
    if not key and secure:
        key = os.environ.get("OPENAI_API_KEY", "").strip()
    return key or None


def _headers(key: str | None) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if key is not None:
        _check(key.isascii() and key.isprintable(), "the key has characters that no key has")
        headers["authorization"] = f"Bearer {key}"
    return headers


def _temperatures(given: float | Sequence[float] | None, votes: int) -> tuple[float | None, ...]:
    """One per vote. Two votes at 0 would be the same vote twice."""
    if given is None or isinstance(given, (int, float)):
        each: tuple[float | None, ...] = (given,) * votes
    else:
        each = tuple(given)
    _check(len(each) == votes, f"{len(each)} temperatures for {votes} votes")
    _check(
        all(t is None or (t >= 0 and math.isfinite(t)) for t in each),
        "temperature is a number of 0 or more",
    )
    _check(each.count(0) <= 1, f"{votes} votes at temperature 0 are one: raise the temperature")
    return each


def _fixed_fields(
    model: str, max_tokens: int | None, extra: Mapping[str, Any] | None
) -> dict[str, Any]:
    extra = dict(extra or {})
    _check(not _OURS & extra.keys(), f"extra cannot set {', '.join(sorted(_OURS & extra.keys()))}")
    try:
        _canonical(extra)
    except (TypeError, ValueError) as error:
        raise UsageError(f"judge: extra is not JSON: {error}") from error
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    return {**extra, **limit, "model": model}


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _count(tokens: int | None) -> int:
    """The number of tokens that a server states, 0 for an impossible one."""
    return tokens if tokens is not None and 0 <= tokens <= _MOST_TOKENS else 0


def _text_of(response: httpx.Response) -> str:
    """The body as text. The charset that a server states may be none that decodes text."""
    return response.content.decode("utf-8", "replace")


def _detail(body: str) -> str:
    """The sentence in a server's error, or all that it sent."""
    try:
        found = json.loads(body)
        for name in ("error", "message", "detail"):
            if isinstance(found, dict) and name in found:
                found = found[name]
    except (ValueError, RecursionError):
        return body
    return found if isinstance(found, str) else body


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait: Retry-After as seconds or as a date; else 0."""
    given = headers.get("retry-after", "").strip()
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(given).timestamp() - time.time()
        except (TypeError, ValueError, IndexError, OverflowError):
            return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


async def _sleep_until(moment: float) -> None:
    if (wait := moment - time.monotonic()) > 0:
        await asyncio.sleep(wait)


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed; 0 of none."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0


def _short(text: str, limit: int) -> str:
    flat = " ".join(text[: 10 * limit].split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"
