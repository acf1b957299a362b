"""A judge on any server with OpenAI's `/chat/completions` endpoint.

It uses the client of this package and not the openai library, which takes three times the processor
time for a request (benchmarks/judge.py --openai: 3.3 s against 1.1 s for 1,000 requests), and which
hides its own retries.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import msgspec

from rag_rewards.errors import BackendError, UsageError, shorten
from rag_rewards.evidence.protocols import (
    BINARY,
    Choice,
    Entities,
    EntityQuestion,
    JudgeQuestion,
    Verdict,
)
from rag_rewards.models.addresses import servers_of
from rag_rewards.models.calls import PerLoop
from rag_rewards.models.client import Client, Sender
from rag_rewards.models.health import Health
from rag_rewards.models.judge_answers import parse_entities, parse_verdict, reply_schema
from rag_rewards.models.judge_prompts import (
    JudgeTemplate,
    code_of,
    entity_messages,
    judge_messages,
)
from rag_rewards.models.judge_tasks import PROMPT_VERSION
from rag_rewards.models.limits import Limits
from rag_rewards.models.openai.arguments import (
    canonical,
    check,
    constant_fields,
    headers,
    temperatures,
)
from rag_rewards.models.openai.usage import JudgeUsage, UsageCounter
from rag_rewards.models.responses import HttpError
from rag_rewards.models.verdict_cache import (
    BackgroundCache,
    CacheFaults,
    Entry,
    cache_key,
    check_cache,
)

log = logging.getLogger("rag_rewards")
OPENAI = "https://api.openai.com/v1"
MAX_BYTES = 16 << 20
"""Maximum size of a response; one of 100,000 tokens has less than 1 MB."""
_MAX_TOKENS = 1 << 40
"""Counts of tokens of one response above this are impossible."""
_MAX_FAILURES = 32
"""Number of consecutive questions without a verdict after which no further question is sent."""
_RETRIES_OF_UNUSABLE = 2
"""Retries of a response without a verdict: at temperature 0, it is often the same again."""
_REFUSALS = frozenset({400, 422})
"""Responses of servers to a field that they do not know."""
_FAULTS = frozenset({415, 500, 501})
"""Further responses of servers that cannot process the field, or that have a fault."""
_TOKENS_OF_CLAIM, _TOKENS_OF_SCORE = 64, 16
"""Tokens of a reply for each claim and for each score of a list."""
_Question = JudgeQuestion | EntityQuestion
_Answer = TypeVar("_Answer")


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
    """The response of /chat/completions."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: _TokenCounts | None = None


@dataclass(frozen=True)
class _Votes:
    """The keys of the votes on the questions of a call, their cached entries, and the cache."""

    keys: dict[_Question, list[bytes]]
    entries: dict[bytes, Entry]
    cache: BackgroundCache | None


class OpenAIJudge:
    """A judge on a chat model over HTTP (the protocol `Judge`).

    model, base_url   name of the model at the server, and the address before /chat/completions
    api_key           default: RAG_REWARDS_JUDGE_KEY, or (only over https) OPENAI_API_KEY; a local
                      server needs none
    temperature       temperature of all votes, or one temperature for each; None for the default
                      of the server
    max_tokens        maximum number of tokens of a response, but at least 64 for each claim of a
                      list and 16 for each score; None for the default of the server. A truncated
                      response has no verdict
    marked            mark each line of a text in the prompt, and require the code of the prompt in
                      the response
    votes             odd number of votes; the majority decides, and no more votes than it needs
                      are requested. Grades are the mean of all votes, and verdicts of 0 or 1 by
                      criterion or response their majority
    templates         your own wording by the kind of the questions
    extra             further fields of the request body, such as {"reasoning_effort": "low"}
    concurrency, timeout, deadline, retries, backoff
                      limits of the requests, as in `Limits`. A response without a verdict is
                      repeated twice
    cache             file of verdicts. The address is not part of the keys: another server of the
                      same model has the same verdicts. No file is open between calls

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
        marked: bool = False,
        votes: int = 1,
        templates: Mapping[str, JudgeTemplate] | None = None,
        extra: Mapping[str, Any] | None = None,
        concurrency: int = 64,
        timeout: float = 60.0,
        deadline: float | None = 600.0,
        retries: int = 7,
        backoff: float = 0.5,
        cache: str | Path | None = None,
    ) -> None:
        check(model.strip() != "", "model must be the name of a model, found an empty string")
        check(votes >= 1 and votes % 2 == 1, f"votes must be an odd number, found {votes}")
        check(
            max_tokens is None or max_tokens >= 1,
            f"max_tokens must be at least 1, found {max_tokens}",
        )
        self.model = model
        self._temperatures = temperatures(temperature, votes)
        self._extra = dict(extra or {})
        self._constant_fields = constant_fields(model, max_tokens, self._extra)
        self._marked = marked
        self._templates = dict(templates or {})
        for kind, template in self._templates.items():
            template.check(kind)
        self._sends_schema, self._accepts_schema = True, False
        self._cache = None if cache is None else check_cache(cache)
        self._caches = PerLoop(self._open_cache, self._close_cache)
        self._counter = UsageCounter()
        check("@" not in base_url, "base_url must contain no password; give the key as api_key")
        servers = servers_of(base_url, is_base=True)
        self._client = Client(
            f"judge {model}",
            servers,
            Limits(
                timeout=timeout,
                deadline=deadline,
                retries=retries,
                backoff=backoff,
                concurrency=concurrency,
            ),
            headers(api_key, is_secure=servers[0].url.lower().startswith("https")),
            extra="judge",
            max_bytes=MAX_BYTES,
            keys="api_key, RAG_REWARDS_JUDGE_KEY or OPENAI_API_KEY",
            on_request=self._counter.add_request,
        )

    def __repr__(self) -> str:
        return f"<OpenAIJudge {self.fingerprint} at {self._client.urls}>"

    @property
    def fingerprint(self) -> str:
        """Everything that affects a verdict: "openai:MODEL prompt=1 votes=1 temperature=0"."""
        votes = len(self._temperatures)
        same = len(set(self._temperatures)) == 1
        distinct = self._temperatures[:1] if same else self._temperatures
        temperature = ",".join("default" if t is None else f"{t:g}" for t in distinct)
        extra = f" extra={canonical(self._extra)}" if self._extra else ""
        extra += " marked" * self._marked
        if self._templates:
            texts = sorted((kind, repr(each)) for kind, each in self._templates.items())
            extra += f" templates={blake2b(repr(texts).encode(), digest_size=6).hexdigest()}"
        return (
            f"openai:{self.model} prompt={PROMPT_VERSION} votes={votes} "
            f"temperature={temperature}{extra}"
        )

    @property
    def health(self) -> Health:
        """The health of the server."""
        return self._client.health

    @property
    def usage(self) -> JudgeUsage:
        """Requests, tokens and latency since the construction."""
        return self._counter.usage()

    async def judge(self, questions: Sequence[JudgeQuestion]) -> list[Verdict | Exception]:
        """Return a verdict or an error for each question, in order. Equal ones are sent once."""
        return await self._answer_each(questions, self._decision)

    async def entities(self, questions: Sequence[EntityQuestion]) -> list[Entities | Exception]:
        """Return the names or an error for each question, in order.

        With several votes, a name counts if more than half of the votes state it. Claims are those
        of the first vote.
        """
        return await self._answer_each(questions, self._common_names)

    async def close(self) -> None:
        """Do nothing: no connection is kept open between calls."""

    # --- questions and votes -------------------------------------------------------------------

    async def _answer_each(
        self,
        questions: Sequence[_Question],
        answer: Callable[[_Votes, Any, Sender], Awaitable[_Answer]],
    ) -> list[_Answer | Exception]:
        """Return an answer or an error for each question, in order."""
        answers: dict[_Question, _Answer | Exception] = {}
        keys: dict[_Question, list[bytes]] = {}
        for question in dict.fromkeys(questions):
            try:
                keys[question] = self.cache_keys(question)
            except UsageError as error:
                answers[question] = error
        async with self._caches.use() as cache:
            entries = await cache.get(chain.from_iterable(keys.values())) if cache else {}
            votes = _Votes(keys, entries, cache)
            results = await self._client.map(
                list(keys), lambda each, sender: answer(votes, each, sender), name=self._label
            )
        answers.update(zip(keys, results, strict=True))
        self._counter.add(failures=sum(isinstance(each, Exception) for each in answers.values()))
        return [answers[question] for question in questions]

    async def _decision(self, votes: _Votes, question: JudgeQuestion, sender: Sender) -> Verdict:
        """Return the majority of binary votes, also by item, or the mean of grades."""
        if not question.is_graded:
            return await self._majority(votes, question, sender)
        count = len(self._temperatures)
        grades = [await self._grades(votes, question, i, sender) for i in range(count)]
        means = tuple(math.fsum(column) / count for column in zip(*grades, strict=True))
        if question.form == BINARY:
            means = tuple(float(mean > 0.5) for mean in means)
        if not question.items:
            return means[0]
        return means[::-1] if question.swapped else means  # in the order of the question

    async def _majority(self, votes: _Votes, question: JudgeQuestion, sender: Sender) -> int:
        """Request votes one after the other, until one verdict has more than half of them."""
        counts = [0, 0]
        while True:
            (grade,) = await self._grades(votes, question, sum(counts), sender)
            verdict = int(grade)
            counts[verdict] += 1
            if 2 * counts[verdict] > len(self._temperatures):
                return verdict

    async def _grades(
        self, votes: _Votes, question: JudgeQuestion, number: int, sender: Sender
    ) -> tuple[float, ...]:
        verdict = cast("Verdict", (await self._vote(votes, question, number, sender)).verdict)
        return verdict if isinstance(verdict, tuple) else (verdict,)

    async def _common_names(
        self, votes: _Votes, question: EntityQuestion, sender: Sender
    ) -> Entities:
        """Return the names that more than half of the votes state."""
        count = 1 if question.kind == "claims" else len(self._temperatures)
        entries = [await self._vote(votes, question, i, sender) for i in range(count)]
        entities = [cast("Entities", entry.entities) for entry in entries]
        names: dict[str, str | None] = {}
        for placeholder in question.placeholders:
            votes_by_name = Counter(each[placeholder] for each in entities)
            name, most = votes_by_name.most_common(1)[0]
            names[placeholder] = name if 2 * most > count else None
        return names

    async def _vote(self, votes: _Votes, question: _Question, number: int, sender: Sender) -> Entry:
        key = votes.keys[question][number]
        entry = votes.entries.get(key)
        if entry and votes.cache and not _is_of_form(entry, question):
            votes.cache.faults.damaged += 1
            entry = None
        if entry is None:
            entry = await self._request_vote(question, self._body(question, number), sender)
            if votes.cache:
                votes.cache.put(key, entry)
        else:
            self._counter.add(
                cache_hits=1,
                cached_prompt_tokens=entry.prompt_tokens,
                cached_completion_tokens=entry.completion_tokens,
            )
        self._counter.add(verdicts=1)
        return entry

    def _body(self, question: _Question, vote: int) -> dict[str, Any]:
        if isinstance(question, EntityQuestion):
            messages = entity_messages(question, marked=self._marked)
        else:
            template = self._templates.get(question.kind)
            messages = judge_messages(question, marked=self._marked, template=template)
        body = {**self._constant_fields, "messages": messages}
        if "max_tokens" in body:
            body["max_tokens"] = max(body["max_tokens"], _least_tokens(question))
        temperature = self._temperatures[vote]
        return body if temperature is None else {**body, "temperature": temperature}

    def cache_keys(self, question: _Question) -> list[bytes]:
        """Return the keys of the votes on a question in the cache. Raises UsageError."""
        return [self._key(question, vote) for vote in range(len(self._temperatures))]

    def _key(self, question: _Question, vote: int) -> bytes:
        form = getattr(question, "form", None)
        # The values of labels are not in the prompt.
        own = {"form": repr(form)} if isinstance(form, Choice) else {}
        return cache_key(
            prompt=PROMPT_VERSION, vote=vote, request=self._body(question, vote), **own
        )

    def _label(self, question: _Question) -> str:
        """Return the beginning of an error about a question."""
        kind = "entity" if isinstance(question, EntityQuestion) else question.kind
        return f"judge {self.model}, {kind} question {shorten(question.question, 60)!r}"

    # --- requests ------------------------------------------------------------------------------

    async def _request_vote(
        self, question: _Question, body: dict[str, Any], sender: Sender
    ) -> Entry:
        """Request a vote, and again if a response has no verdict. HttpError without a verdict."""
        code = code_of(body["messages"]) if self._marked else ""
        retries = min(self._client.limits.retries, _RETRIES_OF_UNUSABLE)
        while True:
            try:
                entry = await self._request_once(question, body, code, sender)
            except HttpError as error:
                if error.status != 200 or not retries:
                    self.health.record_result(str(error), _MAX_FAILURES)
                    raise
                retries -= 1
            else:
                self.health.record_result(None, _MAX_FAILURES)
                return entry

    async def _completion(
        self, question: _Question, body: dict[str, Any], code: str, sender: Sender
    ) -> _Completion:
        """Send a request with the schema of its reply, without one to a server that refuses it."""
        path = "/chat/completions"
        if self._sends_schema and isinstance(question, JudgeQuestion) and question.is_graded:
            schema = reply_schema(question.form, question.items, code)
            extended = {"response_format": schema, **body}
            try:
                completion = await sender.post(path, _encoded(extended), _Completion)
            except HttpError as error:
                if error.status not in (_REFUSALS if self._accepts_schema else _REFUSALS | _FAULTS):
                    raise
            else:
                self._accepts_schema = True
                return completion
            completion = await sender.post(path, _encoded(body), _Completion)
            self._sends_schema = False
            return completion
        return await sender.post(path, _encoded(body), _Completion)

    async def _request_once(
        self, question: _Question, body: dict[str, Any], code: str, sender: Sender
    ) -> Entry:
        """Return the verdict of a response. HttpError with status 200 if it has none."""
        completion = await self._completion(question, body, code, sender)
        counts = completion.usage or _TokenCounts()
        prompt, generated = _count(counts.prompt_tokens), _count(counts.completion_tokens)
        self._counter.add(prompt_tokens=prompt, completion_tokens=generated)
        choice = completion.choices[0]
        text = choice.message.content or ""
        if choice.finish_reason == "length":
            reason = f"was cut off at max_tokens: …{text[-99:]}"
        elif isinstance(question, EntityQuestion):
            entities = parse_entities(text, question.placeholders, code)
            if entities is not None:
                return Entry(None, prompt, generated, text, dict(entities))
            reason = f"has no names: {text or choice.message.refusal!r}"
        else:
            verdict = parse_verdict(text, question.kind, code, question.form, question.items)
            if verdict is not None:
                return Entry(verdict, prompt, generated, text)
            reason = f"has no verdict: {text or choice.message.refusal!r}"
        reason = self._client.message_text(reason, 200)
        raise sender.error(f"the response of {sender.server.url} {reason}", 200)

    # --- the cache -----------------------------------------------------------------------------

    def _open_cache(self) -> BackgroundCache | None:
        return None if self._cache is None else BackgroundCache(self._cache)

    async def _close_cache(self, cache: BackgroundCache | None) -> None:
        if cache is not None:
            await cache.close()
            self._report(cache.faults)

    def _report(self, faults: CacheFaults) -> None:
        """Count the faults of the cache, and log the first ones."""
        if faults.total and not self.usage.cache_faults and self._cache:
            log.warning(
                "the judge's cache %s: %d verdicts could not be read, %d could not be written, %d "
                "were damaged%s; these verdicts are requested again, and further faults are only "
                "counted",
                self._cache,
                faults.unread,
                faults.unwritten,
                faults.damaged,
                f" ({faults.reason})" if faults.reason else "",
            )
        self._counter.add(cache_faults=faults.total)


# --- bodies and entries --------------------------------------------------------------------------


def _least_tokens(question: _Question) -> int:
    """Return the number of tokens that a reply with a list can have, 0 for another reply."""
    if isinstance(question, EntityQuestion):
        return _TOKENS_OF_CLAIM * len(question.placeholders) * (question.kind == "claims")
    return _TOKENS_OF_SCORE * question.items


def _is_of_form(entry: Entry, question: _Question) -> bool:
    """Return whether an entry of the cache can be the answer to a question."""
    if isinstance(question, EntityQuestion):
        return set(question.placeholders) <= (entry.entities or {}).keys()
    try:
        question.check(entry.verdict)
    except BackendError:
        return False
    return True


def _encoded(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body, order="sorted")


def _count(tokens: int | None) -> int:
    """Return a number of tokens; 0 for one that is impossible."""
    return tokens if tokens is not None and 0 <= tokens <= _MAX_TOKENS else 0
