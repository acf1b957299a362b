"""Ask first: the needs of a batch, answered by models, written on the rollouts as evidence.

    gatherer = Gatherer(Models(policy=policy, judge=judge))
    informed = gatherer.gather_sync(recipe, rollouts)     # or: await gatherer.gather(…)

Equal questions are asked once, groups that share a prompt are one request, and the kinds of
model are asked at the same time. What fails marks the rollouts that needed it, and no other.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from rag_rewards.errors import (
    BackendError,
    DataError,
    EvidenceError,
    GroupError,
    RolloutError,
    RowError,
    ScoringError,
    UsageError,
    describe,
    is_control_flow,
    scoring_errors,
)
from rag_rewards.evidence.contexts import Contexts
from rag_rewards.evidence.needs import (
    EntailmentNeed,
    LogProbsNeed,
    MaskedAnswersNeed,
    MaskedLogProbsNeed,
    Need,
    SimilarityNeed,
    VerdictNeed,
)
from rag_rewards.evidence.protocols import (
    GenerateAnswer,
    GenerateRequest,
    Judge,
    Models,
    Policy,
    ScoreAnswer,
    ScoreRequest,
    TokenIds,
)
from rag_rewards.groups import Groups, group_by_key
from rag_rewards.prompts import GROUNDED, Prompt
from rag_rewards.rollout import (
    Entailment,
    Evidence,
    LogProbs,
    MaskedAnswers,
    MaskedLogProbs,
    Rollout,
    Similarity,
)

R = TypeVar("R", bound=Rollout)
N = TypeVar("N", bound=Need)
T = TypeVar("T")


class Asks(Protocol):
    """Whatever says what it needs: a reward, a recipe, a curriculum."""

    def needs(self, rollout: Rollout) -> Sequence[Need]: ...


@dataclass
class EvidenceUsage:
    """What was asked so far: questions after duplicates were removed, tokens, seconds."""

    groups: int = 0
    computed: int = 0
    reused: int = 0
    generated: int = 0
    pairs: int = 0
    verdicts: int = 0
    seconds: float = 0.0
    path: str = ""

    @property
    def reuse(self) -> float:
        """Share of naive scoring's tokens that no model was run on, 0 to 1."""
        total = self.computed + self.reused
        return self.reused / total if total else 0.0


Open = dict[int, list[Need]]
"""Position of a rollout → what nothing answers yet."""


@dataclass
class Gatherer:
    """Asks models what a reward needs to know.

    `prompt` is how rows without a prompt of their own are asked, and how documents stand in
    those that have one. `selfcheck` lets the policy prove its values before the first use.
    Errors: a rollout that cannot be asked about (DataError) or whose model failed (BackendError)
    comes back as its error; a policy that fails its self-check raises for all. Exceptions of a
    backend that are none of this package's, native panics included, are BackendErrors.
    """

    models: Models
    prompt: Prompt = GROUNDED
    truncate: bool = False
    selfcheck: bool = True
    template: dict[str, Any] = field(default_factory=dict)
    usage: EvidenceUsage = field(default_factory=EvidenceUsage)

    def __post_init__(self) -> None:
        self._checked = not self.selfcheck
        self._checking = threading.Lock()

    @property
    def fingerprints(self) -> dict[str, str]:
        """The models, and what of their prompts changes a value: parts of the signature."""
        told = self.models.fingerprints
        if self.models.policy is not None:
            shown = (self.prompt, self.template, self.truncate)
            template = getattr(self.models.policy.tokenizer, "chat_template", None)
            digest = blake2b(repr((shown, template)).encode(), digest_size=6).hexdigest()
            told["prompt"] = digest + (" truncated" if self.truncate else "")
        return told

    def gather_sync(
        self, reward: Asks, rollouts: Sequence[R], groups: Groups | None = None
    ) -> list[R | RolloutError]:
        """The same for scripts and trainers' threads; also where an event loop runs already."""
        return _run(self.gather(reward, rollouts, groups))

    async def gather(
        self, reward: Asks, rollouts: Sequence[R], groups: Groups | None = None
    ) -> list[R | RolloutError]:
        """Every rollout with the evidence that it lacked, or with its error.

        `groups` gives the positions of each group's members where the rollouts' own keys do not.
        What a rollout is told depends on its group alone, whoever else is asked about with it.
        """
        started = time.perf_counter()
        found = _Found(len(rollouts))
        needs = _open_needs(reward, rollouts)
        kinds: list[Coroutine[Any, Any, None]] = []
        if self.models.policy is not None:
            places = _places(rollouts, groups)
            asked = _Policy(self, self.models.policy, rollouts, found, places)
            kinds.append(asked.answer(needs))
        if self.models.entailment is not None:
            entailed = _of_kind(needs, EntailmentNeed)
            asks = self.models.entailment.entail
            kinds.append(self._pairs(entailed, asks, "nli", Entailment, rollouts, found))
        if self.models.similarity is not None:
            similar = _of_kind(needs, SimilarityNeed)
            asks = self.models.similarity.similarity
            kinds.append(self._pairs(similar, asks, "similarity", Similarity, rollouts, found))
        if self.models.judge is not None:
            kinds.append(self._verdicts(self.models.judge, needs, rollouts, found))
        await _all(kinds)
        self.usage.seconds += time.perf_counter() - started
        return [found.informed(i, rollout) for i, rollout in enumerate(rollouts)]

    async def check(self, policy: Policy) -> None:
        """Run the policy's self-check once; concurrent callers wait for it.

        Raises BackendError, also for a panic of the policy's native code.
        """

        def once() -> None:
            with self._checking:
                if not self._checked:
                    asyncio.run(_selfcheck(policy))
                    self._checked = True

        if not self._checked:
            await asyncio.to_thread(once)

    async def _pairs(
        self,
        wanted: Mapping[int, Sequence[EntailmentNeed | SimilarityNeed]],
        ask: Callable[[Sequence[tuple[str, str]]], Awaitable[list[float]]],
        field_name: str,
        entry: type[Entailment] | type[Similarity],
        rollouts: Sequence[Rollout],
        found: _Found,
    ) -> None:
        """Numbers about pairs of texts, as entries of the evidence field of that name."""
        pairs = list(dict.fromkeys(astuple(need) for needs in wanted.values() for need in needs))
        answers = await _asked(lambda: ask(pairs), len(pairs))
        known = dict(zip(pairs, answers, strict=True))
        self.usage.pairs += len(pairs)
        for i, needs in wanted.items():
            entries = list(getattr(rollouts[i], field_name) or ())
            for pair in map(astuple, needs):
                if isinstance(known[pair], BaseException):
                    found.fail(i, known[pair], field_name)
                else:
                    values = (*pair, known[pair])
                    entries.append(entry(**dict(zip(entry.__struct_fields__, values, strict=True))))
            found.evidence[i][field_name] = tuple(entries)

    async def _verdicts(
        self, judge: Judge, needs: Open, rollouts: Sequence[Rollout], found: _Found
    ) -> None:
        wanted = _of_kind(needs, VerdictNeed)
        questions = list(
            dict.fromkeys(q for ns in wanted.values() for n in ns for q in n.questions)
        )
        answers = await _asked(lambda: judge.judge(questions), len(questions))
        self.usage.verdicts += len(questions)
        known = dict(zip(questions, answers, strict=True))
        for i, asked in wanted.items():
            verdicts: dict[str, Any] = dict(rollouts[i].verdicts or {})
            for need in asked:
                verdict = _any_yes([known[question] for question in need.questions])
                if isinstance(verdict, BaseException):
                    found.fail(i, verdict, f"verdicts.{need.component}")
                elif verdict is not None:
                    verdicts[need.component] = verdict
            found.evidence[i]["verdicts"] = verdicts


def _any_yes(answers: Sequence[int | BaseException]) -> int | BaseException | None:
    """1 where any answer is 1; else the error that may hide one; else 0."""
    if any(answer == 1 for answer in answers if isinstance(answer, int)):
        return 1
    broken = next((answer for answer in answers if isinstance(answer, BaseException)), None)
    return broken or (0 if answers else None)


# --- the policy --------------------------------------------------------------------------------


@dataclass
class _Group:
    """Rollouts of one prompt: the contexts and responses that somebody needs."""

    contexts: dict[str | None, TokenIds] = field(default_factory=dict)
    responses: dict[TokenIds, int] = field(default_factory=dict)
    members: list[tuple[int, tuple[str, ...], TokenIds]] = field(default_factory=list)

    def request(self) -> ScoreRequest:
        order = {label: at for at, label in enumerate(self.contexts)}
        pairs = {
            (order[label], self.responses[response]): None
            for _, labels, response in self.members
            for label in (None, *labels)
        }
        return ScoreRequest(tuple(self.contexts.values()), tuple(self.responses), tuple(pairs))


@dataclass
class _Policy:
    """What a batch asks a language model."""

    gatherer: Gatherer
    policy: Policy
    rollouts: Sequence[Rollout]
    found: _Found
    places: Sequence[tuple[Any, int]]
    spans: dict[int, tuple[int, int] | None] = field(default_factory=dict)

    async def answer(self, needs: Open) -> None:
        likelihoods = _of_kind(needs, LogProbsNeed)
        generated = _of_kind(needs, MaskedAnswersNeed)
        masked = _of_kind(needs, MaskedLogProbsNeed)
        if not (likelihoods or generated or masked):
            return
        await self.gatherer.check(self.policy)
        self.contexts = Contexts(
            self.policy.tokenizer,
            self.gatherer.prompt,
            self.policy.max_length,
            self.gatherer.truncate,
            self.gatherer.template,
        )
        await _all(
            [
                self._likelihoods(likelihoods),
                self._masked_answers(generated),
                self._masked_likelihoods(masked),
            ]
        )

    async def _likelihoods(self, wanted: dict[int, list[LogProbsNeed]]) -> None:
        groups: dict[TokenIds, _Group] = {}
        longest: dict[Any, int] = {}
        responses: dict[int, TokenIds] = {}
        for i in wanted:
            with self.found.failing(i):
                responses[i] = self.contexts.response(self.rollouts[i])
                key = self.places[i][0]
                longest[key] = max(longest.get(key, 0), len(responses[i]))
        for i, response in responses.items():
            rollout = self.rollouts[i]
            labels = tuple(dict.fromkeys(d for need in wanted[i] for d in need.without))
            with self.found.failing(i):
                room = longest[self.places[i][0]]
                full, without = self.contexts.leave_one_out(rollout, labels, room)
                self.spans[i] = self.contexts.answer_span(rollout)
                group = groups.setdefault(full, _Group())
                group.contexts[None] = full
                group.contexts.update(without)
                group.responses.setdefault(response, len(group.responses))
                group.members.append((i, labels, response))
        requests = [group.request() for group in groups.values()]
        answers = await self._scored(requests, [[m[0] for m in g.members] for g in groups.values()])
        for group, answer in zip(groups.values(), answers, strict=True):
            if answer is not None:
                self._write_likelihoods(group, answer)

    def _write_likelihoods(self, group: _Group, answer: ScoreAnswer) -> None:
        order = {label: at for at, label in enumerate(group.contexts)}
        for i, labels, response in group.members:
            at = group.responses[response]
            self.found.evidence[i]["logprobs"] = LogProbs(
                full=tuple(answer.logprobs[0, at]),
                without={label: tuple(answer.logprobs[order[label], at]) for label in labels},
                answer_span=self.spans[i],
            )

    async def _masked_likelihoods(self, wanted: dict[int, list[MaskedLogProbsNeed]]) -> None:
        requests: list[ScoreRequest] = []
        asked: list[tuple[int, str]] = []
        for i, needs in wanted.items():
            with self.found.failing(i):
                aliases = [alias for aliases in self.rollouts[i].gold for alias in aliases]
                responses = tuple(map(self.contexts.tokens, aliases))
                room = max(map(len, responses))
                new = [(self._masked(i, n, room), n.part) for n in needs]
                requests.extend(ScoreRequest((context,), responses) for context, _ in new)
                asked.extend((i, part) for _, part in new)
        answers = await self._scored(requests, [[i] for i, _ in asked])
        parts: dict[int, dict[str, Any]] = {}
        for (i, part), request, answer in zip(asked, requests, answers, strict=True):
            if answer is not None:
                per_alias = tuple(
                    tuple(answer.logprobs[0, at]) for at in range(len(request.responses))
                )
                parts.setdefault(i, _parts_of(self.rollouts[i].masked_logprobs))[part] = per_alias
        for i, known in parts.items():
            self.found.evidence[i]["masked_logprobs"] = MaskedLogProbs(**known)

    async def _masked_answers(self, wanted: dict[int, list[MaskedAnswersNeed]]) -> None:
        asked: list[tuple[int, str, GenerateRequest]] = []
        for i, needs in wanted.items():
            with self.found.failing(i):
                asked += [
                    (i, n.part, self._generate_request(self.rollouts[i], n, i)) for n in needs
                ]
        requests = list(dict.fromkeys(request for _, _, request in asked))
        made = await _asked(lambda: self.policy.generate(requests), len(requests))
        known = dict(zip(requests, made, strict=True))
        parts: dict[int, dict[str, Any]] = {}
        for i, part, request in asked:
            answer = known[request]
            if isinstance(answer, GenerateAnswer):
                parts.setdefault(i, _parts_of(self.rollouts[i].masked_answers))[part] = answer.text
            else:
                self.found.fail(i, answer, f"masked_answers.{part}")
        self.gatherer.usage.generated += sum(
            len(answer.token_ids) for answer in made if isinstance(answer, GenerateAnswer)
        )
        for i, fields in parts.items():
            self.found.evidence[i]["masked_answers"] = MaskedAnswers(**fields)

    def _generate_request(
        self, rollout: Rollout, need: MaskedAnswersNeed, i: int
    ) -> GenerateRequest:
        # Sampled answers of equal contexts are different samples, and the same ones next time.
        seed = self.places[i][1] if need.temperature > 0 else None
        context = self._masked(i, need, need.max_tokens)
        return GenerateRequest(context, need.max_tokens, need.temperature, ("</answer>",), seed)

    def _masked(self, i: int, need: MaskedAnswersNeed | MaskedLogProbsNeed, room: int) -> TokenIds:
        tags = {} if need.tags is None else {"tags": need.tags}
        return self.contexts.masked(self.rollouts[i], need.part, room=room, **tags)

    async def _scored(
        self, requests: Sequence[ScoreRequest], rollouts: Sequence[Sequence[int]]
    ) -> list[ScoreAnswer | None]:
        """Answers; where there is none, the rollouts of that request have the error."""
        answers = await _asked(lambda: self.policy.score(requests), len(requests))
        out: list[ScoreAnswer | None] = []
        usage = self.gatherer.usage
        for answer, members in zip(answers, rollouts, strict=True):
            if isinstance(answer, ScoreAnswer):
                usage.groups += 1
                usage.computed += answer.computed
                usage.reused += answer.reused
                usage.path = answer.path
                out.append(answer)
                continue
            for i in members:
                self.found.fail(i, answer)
            out.append(None)
        return out


def _places(rollouts: Sequence[Rollout], groups: Groups | None) -> list[tuple[Any, int]]:
    """The group of each rollout, and which of its members it is."""
    if groups is None:
        groups = group_by_key(rollouts)
    places: dict[int, tuple[Any, int]] = {}
    for number, group in enumerate(groups):
        places.update({i: (number, at) for at, i in enumerate(group)})
    return [places.get(i, (("alone", i), 0)) for i in range(len(rollouts))]


def _parts_of(known: Any) -> dict[str, Any]:
    return {name: getattr(known, name) for name in known.__struct_fields__} if known else {}


# --- what is open, what was found --------------------------------------------------------------


_TOLD = (RowError, DataError, EvidenceError, GroupError, BackendError, ScoringError)
"""What an error of a row can be called; backends have finer kinds of their own."""


class _Found:
    """Evidence by rollout, and the first error of each."""

    def __init__(self, count: int) -> None:
        self.evidence: list[dict[str, Any]] = [{} for _ in range(count)]
        self.errors: dict[int, RolloutError] = {}

    def fail(self, i: int, error: BaseException, path: str = "") -> None:
        if isinstance(error, RolloutError):
            kind = type(error) if type(error) in _TOLD else BackendError
            own = kind(error.message, error.path or path)
        else:
            own = BackendError(describe(error), path)
        own.__cause__ = error.with_traceback(None)  # its frames may hold a model's tensors
        self.errors.setdefault(i, own)

    @contextmanager
    def failing(self, i: int) -> Iterator[None]:
        """Record an exception of this block as the error of rollout `i`.

        A UsageError concerns the whole call and passes through.
        """
        try:
            yield
        except UsageError:
            raise
        except BaseException as error:
            if is_control_flow(error):
                raise
            self.fail(i, error)

    def informed(self, i: int, rollout: R) -> R | RolloutError:
        if (error := self.errors.get(i)) is not None:
            error.row = str(rollout.id) if rollout.id is not None else None
            return error
        new = self.evidence[i]
        return rollout.with_evidence(Evidence(**new)) if new else rollout


def _open_needs(reward: Asks, rollouts: Sequence[Rollout]) -> Open:
    """What nothing answers yet. A rollout whose needs cannot be told has none: scoring says why."""
    needs: Open = {}
    for i, rollout in enumerate(rollouts):
        try:
            with scoring_errors():
                needs[i] = [need for need in reward.needs(rollout) if not need.is_met(rollout)]
        except RolloutError:
            continue
    return needs


def _of_kind(needs: Open, kind: type[N]) -> dict[int, list[N]]:
    chosen: dict[int, list[N]] = {}
    for i, asked in needs.items():
        for need in asked:
            if isinstance(need, kind):
                chosen.setdefault(i, []).append(need)
    return chosen


async def _asked(ask: Callable[[], Awaitable[list[Any]]], count: int) -> list[Any]:
    """What came of each question; a call that fails whole fails each of them."""
    if not count:
        return []
    try:
        answers = await ask()
    except BaseException as error:
        if is_control_flow(error):
            raise
        return [error] * count
    if len(answers) != count:
        return [BackendError(f"{len(answers)} answers to {count} questions")] * count
    return answers


async def _selfcheck(policy: Policy) -> None:
    try:
        await policy.selfcheck()
    except Exception:
        raise
    except BaseException as error:
        if is_control_flow(error):
            raise
        raise BackendError(describe(error)) from error


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All at the same time; the first error, when the others have ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, in a thread of its own where this one has an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
