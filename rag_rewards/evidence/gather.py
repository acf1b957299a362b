"""The gatherer: it calls models for the needs of a batch, and adds evidence to the rollouts.

    gatherer = Gatherer(Models(policy=policy, judge=judge))
    informed = gatherer.gather_sync(recipe, rollouts)     # or: await gatherer.gather(…)

Equal requests are sent once, and different kinds of models are called at the same time. If a model
fails, only the rollouts that needed its output are in error.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from hashlib import blake2b
from typing import Any, TypeVar

from rag_rewards.errors import BackendError, RolloutError, describe, is_control_flow
from rag_rewards.evidence.contexts import Contexts
from rag_rewards.evidence.needs import (
    ContradictionNeed,
    EntailmentNeed,
    EntitiesNeed,
    LogProbsNeed,
    MaskedAnswersNeed,
    MaskedLogProbsNeed,
    SimilarityNeed,
    TurnLogProbsNeed,
    VerdictNeed,
)
from rag_rewards.evidence.outcomes import (
    HasNeeds,
    NeedsByRollout,
    Outcomes,
    R,
    call_model,
    further_needs,
    needs_of_type,
    unmet_needs,
)
from rag_rewards.evidence.policy_evidence import Place, PolicyEvidence, places_of
from rag_rewards.evidence.protocols import (
    NO_ENTITIES,
    ContradictionModel,
    EntailmentModel,
    EntityJudge,
    Judge,
    Models,
    Policy,
)
from rag_rewards.evidence.turn_evidence import TurnEvidence
from rag_rewards.evidence.usage import EvidenceUsage
from rag_rewards.groups import Groups
from rag_rewards.prompts import GROUNDED, Prompt
from rag_rewards.rollout import Entailment, Rollout, Similarity

T = TypeVar("T")
_MAX_ROUNDS = 8
"""Largest number of rounds in which evidence can raise further needs."""


@dataclass
class Gatherer:
    """Calls models for the evidence that a reward needs.

    models     the available models
    prompt     prompt of rows without one, and form of the documents in rows with one
    truncate   drop non-supporting documents when the prompt exceeds the context length
    selfcheck  run the self-check of the policy before its first use
    template   further arguments of the chat template, such as {"enable_thinking": False}
    response_limit  the parameter of a trainer that limits the length of a response, for errors
    usage      counter of the work of the models

    A rollout with invalid data results in a DataError, and a rollout whose model failed in a
    BackendError. Other exceptions of a backend, including panics of native code, are converted to a
    BackendError. A policy that fails its self-check raises BackendError for the whole call.
    """

    models: Models
    prompt: Prompt = GROUNDED
    truncate: bool = False
    selfcheck: bool = True
    template: dict[str, Any] = field(default_factory=dict)
    response_limit: str = ""
    usage: EvidenceUsage = field(default_factory=EvidenceUsage)

    def __post_init__(self) -> None:
        self._is_checked = not self.selfcheck
        self._check_lock = threading.Lock()

    @property
    def fingerprints(self) -> dict[str, str]:
        """The models, and a digest of the prompt settings that affect values, for the signature."""
        fingerprints = self.models.fingerprints
        if self.models.policy is not None:
            settings = (self.prompt.identity, self.template, self.truncate)
            template = getattr(self.models.policy.tokenizer, "chat_template", None)
            digest = blake2b(repr((settings, template)).encode(), digest_size=6).hexdigest()
            fingerprints["prompt"] = digest + (" truncated" if self.truncate else "")
        return fingerprints

    def gather_sync(
        self, reward: HasNeeds, rollouts: Sequence[R], groups: Groups | None = None
    ) -> list[R | RolloutError]:
        """Return the same as `gather`, for callers with or without a running event loop."""
        return run_coroutine(self.gather(reward, rollouts, groups))

    async def gather(
        self, reward: HasNeeds, rollouts: Sequence[R], groups: Groups | None = None
    ) -> list[R | RolloutError]:
        """Return each rollout with the evidence that the reward needs, or its error.

        reward    a reward, a recipe or a curriculum
        rollouts  a batch of rollouts
        groups    positions of the members of each group; default: the rollouts' own keys

        The evidence of a rollout depends only on its group, not on the rest of the batch. New
        evidence can raise further needs, such as a verdict on a claim that a judge completed.
        """
        started = time.perf_counter()
        informed = list(rollouts)
        errors: dict[int, RolloutError] = {}
        needs: NeedsByRollout = unmet_needs(reward, rollouts)
        for _ in range(_MAX_ROUNDS):
            outcomes = Outcomes(len(rollouts))
            await self._meet(needs, informed, groups, outcomes)
            answered: list[int] = []
            for i in needs:
                result = outcomes.result(i, informed[i])
                if isinstance(result, RolloutError):
                    errors[i] = result
                elif result is not informed[i]:
                    informed[i] = result
                    answered.append(i)
            needs = further_needs(reward, informed, needs, answered)
            if not needs:
                break
        self.usage.seconds += time.perf_counter() - started
        return [errors.get(i, rollout) for i, rollout in enumerate(informed)]

    async def _meet(
        self,
        needs: NeedsByRollout,
        rollouts: Sequence[Rollout],
        groups: Groups | None,
        outcomes: Outcomes,
    ) -> None:
        """Call all models for the needs of a round."""
        tasks: list[Coroutine[Any, Any, None]] = []
        if (policy := self.models.policy) is not None:
            places = places_of(rollouts, groups)
            tasks.append(self._policy_evidence(policy, needs, rollouts, places, outcomes))
        if (entailment := self.models.entailment) is not None:
            tasks.append(self._entailments(entailment, needs, rollouts, outcomes))
        if (similarity := self.models.similarity) is not None:
            call, texts = similarity.similarity, needs_of_type(needs, SimilarityNeed)
            tasks.append(self._pairs(texts, call, "similarity", _similarity, rollouts, outcomes))
        if (judge := self.models.judge) is not None:
            tasks.append(self._verdicts(judge, needs, rollouts, outcomes))
            tasks.append(self._entities(judge, needs, outcomes))
        await _run_all(tasks)

    async def check(self, policy: Policy) -> None:
        """Run the policy's self-check once; concurrent callers wait for it.

        Raises BackendError, also for a panic of the policy's native code.
        """

        def check_once() -> None:
            with self._check_lock:
                if not self._is_checked:
                    asyncio.run(_selfcheck(policy))
                    self._is_checked = True

        if not self._is_checked:
            await asyncio.to_thread(check_once)

    async def _policy_evidence(
        self,
        policy: Policy,
        needs: NeedsByRollout,
        rollouts: Sequence[Rollout],
        places: Sequence[Place],
        outcomes: Outcomes,
    ) -> None:
        logprobs = needs_of_type(needs, LogProbsNeed)
        masked_answers = needs_of_type(needs, MaskedAnswersNeed)
        masked_logprobs = needs_of_type(needs, MaskedLogProbsNeed)
        turn_logprobs = needs_of_type(needs, TurnLogProbsNeed)
        if not (logprobs or masked_answers or masked_logprobs or turn_logprobs):
            return
        await self.check(policy)
        contexts = Contexts(
            policy.tokenizer,
            self.prompt,
            policy.max_length,
            self.truncate,
            self.template,
            self.response_limit,
        )
        evidence = PolicyEvidence(policy, contexts, rollouts, places, outcomes, self.usage)
        await _run_all(
            [
                evidence.logprobs(logprobs),
                evidence.masked_answers(masked_answers),
                evidence.masked_logprobs(masked_logprobs),
                TurnEvidence(evidence, turn_logprobs).gather(),
            ]
        )

    async def _entailments(
        self,
        model: EntailmentModel,
        needs: NeedsByRollout,
        rollouts: Sequence[Rollout],
        outcomes: Outcomes,
    ) -> None:
        """Add the probabilities of entailments and contradictions."""
        both = needs_of_type(needs, ContradictionNeed)
        call: Callable[[Sequence[tuple[str, str]]], Awaitable[Sequence[Any]]] = _no_contradictions
        if isinstance(model, ContradictionModel):
            call = model.entail_and_contradict
        await self._pairs(both, call, "nli", _contradiction, rollouts, outcomes)
        pairs = needs_of_type(needs, EntailmentNeed)
        await self._pairs(pairs, model.entail, "nli", _entailment, rollouts, outcomes)

    async def _pairs(
        self,
        needs: Mapping[int, Sequence[EntailmentNeed | ContradictionNeed | SimilarityNeed]],
        call: Callable[[Sequence[tuple[str, str]]], Awaitable[Sequence[Any]]],
        field_name: str,
        entry: Callable[[str, str, Any], Entailment | Similarity],
        rollouts: Sequence[Rollout],
        outcomes: Outcomes,
    ) -> None:
        """Add numbers about pairs of texts, as entries of this evidence field."""
        pairs = list(dict.fromkeys(astuple(need) for own in needs.values() for need in own))
        results = await call_model(lambda: call(pairs), len(pairs))
        result_of = dict(zip(pairs, results, strict=True))
        self.usage.pairs += len(pairs)
        for i, own in needs.items():
            known = outcomes.evidence[i].get(field_name) or getattr(rollouts[i], field_name)
            entries = list(known or ())
            for pair in map(astuple, own):
                result = result_of[pair]
                if isinstance(result, BaseException):
                    outcomes.fail(i, result, field_name)
                else:
                    first, second = pair
                    entries.append(entry(first, second, result))
            outcomes.evidence[i][field_name] = tuple(entries)

    async def _verdicts(
        self,
        judge: Judge,
        needs: NeedsByRollout,
        rollouts: Sequence[Rollout],
        outcomes: Outcomes,
    ) -> None:
        """Add the verdicts of a judge."""
        of_verdicts = needs_of_type(needs, VerdictNeed)
        questions = list(
            dict.fromkeys(
                question
                for own in of_verdicts.values()
                for need in own
                for question in need.questions
            )
        )
        answers = await call_model(lambda: judge.judge(questions), len(questions))
        self.usage.verdicts += len(questions)
        answer_of = dict(zip(questions, answers, strict=True))
        for i, own in of_verdicts.items():
            verdicts: dict[str, Any] = dict(rollouts[i].verdicts or {})
            for need in own:
                verdict = _any_yes([answer_of[question] for question in need.questions])
                if isinstance(verdict, BaseException):
                    outcomes.fail(i, verdict, f"verdicts.{need.component}")
                elif verdict is not None:
                    verdicts[need.component] = verdict
            outcomes.evidence[i]["verdicts"] = verdicts

    async def _entities(self, judge: Judge, needs: NeedsByRollout, outcomes: Outcomes) -> None:
        """Add the names that a judge reads from responses."""
        of_entities = needs_of_type(needs, EntitiesNeed)
        question_of = {i: own[0].question for i, own in of_entities.items()}
        questions = list(dict.fromkeys(q for q in question_of.values() if q is not None))
        if not questions:
            return
        if isinstance(judge, EntityJudge):
            reader = judge
            answers = await call_model(lambda: reader.entities(questions), len(questions))
        else:
            answers = [BackendError(NO_ENTITIES)] * len(questions)
        self.usage.verdicts += len(questions)
        answer_of = dict(zip(questions, answers, strict=True))
        for i, question in question_of.items():
            if question is None:
                continue
            answer = answer_of[question]
            if isinstance(answer, BaseException):
                outcomes.fail(i, answer, "entities")
            else:
                outcomes.evidence[i]["entities"] = dict(answer)


async def _no_contradictions(pairs: Sequence[tuple[str, str]]) -> list[Any]:
    raise BackendError(
        "the entailment model has no label for contradiction: set nli to a model with three labels"
    )


def _entailment(premise: str, hypothesis: str, entailment: float) -> Entailment:
    return Entailment(premise=premise, hypothesis=hypothesis, entailment=entailment)


def _contradiction(premise: str, hypothesis: str, both: tuple[float, float]) -> Entailment:
    entailment, contradiction = both
    return Entailment(
        premise=premise,
        hypothesis=hypothesis,
        entailment=entailment,
        contradiction=contradiction,
    )


def _similarity(text: str, reference: str, similarity: float) -> Similarity:
    return Similarity(text=text, reference=reference, similarity=similarity)


def _any_yes(answers: Sequence[int | BaseException]) -> int | BaseException | None:
    """Return 1 if any answer is 1; otherwise an error, which may hide a 1; otherwise 0.

    Returns None without answers.
    """
    if any(answer == 1 for answer in answers if isinstance(answer, int)):
        return 1
    error = next((answer for answer in answers if isinstance(answer, BaseException)), None)
    return error or (0 if answers else None)


async def _selfcheck(policy: Policy) -> None:
    try:
        await policy.selfcheck()
    except Exception:
        raise
    except BaseException as error:
        if is_control_flow(error):
            raise
        raise BackendError(describe(error)) from error


async def _run_all(tasks: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run tasks at the same time. Raises the first error when all of them have ended."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in another thread if this one has a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
