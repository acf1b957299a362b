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
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from rag_rewards.errors import (
    BackendError,
    RolloutError,
    describe,
    is_control_flow,
    scoring_errors,
)
from rag_rewards.evidence.contexts import Contexts
from rag_rewards.evidence.exchange import EvidenceUsage, Job, Outcomes, R, exchange
from rag_rewards.evidence.judge_needs import (
    EntitiesNeed,
    GradesNeed,
    GroupGrades,
    GroupGradesNeed,
    VerdictNeed,
)
from rag_rewards.evidence.needs import (
    ContradictionNeed,
    EntailmentNeed,
    Need,
    NeedsByRollout,
    SimilarityNeed,
    needs_of_type,
)
from rag_rewards.evidence.policy_evidence import Place, PolicyEvidence
from rag_rewards.evidence.protocols import Models, Policy
from rag_rewards.groups import Groups, group_by_key
from rag_rewards.prompts import GROUNDED, Prompt
from rag_rewards.rollout import Rollout

T = TypeVar("T")
_MAX_ROUNDS = 8
"""Largest number of rounds in which evidence can raise further needs."""

_TEXT_NEEDS: tuple[tuple[type[Need], ...], ...] = (
    (EntailmentNeed, ContradictionNeed),
    (SimilarityNeed,),
    (VerdictNeed, GradesNeed, GroupGradesNeed),
    (EntitiesNeed,),
)
"""The needs that models of texts meet. Those of one field are met one after another, so that its
entries always have the same order."""


class HasNeeds(Protocol):
    """An object that declares its needs: a reward, a recipe or a curriculum."""

    def needs(self, rollout: Rollout) -> Sequence[Need]: ...


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
            digest = _digest(settings, self.models.policy)
            fingerprints["prompt"] = digest + (" truncated" if self.truncate else "")
        if self.models.generator is not None:
            fingerprints["generator"] += " " + _digest(self.template, self.models.generator)
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
        needs: NeedsByRollout = _unmet_needs(reward, dict(enumerate(rollouts)))
        for _ in range(_MAX_ROUNDS):
            outcomes = Outcomes(informed)
            await self._meet(needs, informed, groups, outcomes)
            answered: dict[int, R] = {}
            for i in needs:
                result = outcomes.result(i, informed[i])
                if isinstance(result, RolloutError):
                    errors[i] = result
                elif result is not informed[i]:
                    informed[i] = answered[i] = result
            needs = _unmet_needs(reward, answered, needs)
            if not any(needs.values()):
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
        places = _places(rollouts, groups)
        tasks = [self._text_evidence(kinds, needs, outcomes, places) for kinds in _TEXT_NEEDS]
        kinds = {need.model_kind for own in needs.values() for need in own}
        for kind in ("policy", "generator"):
            if kind in kinds and (policy := self.models.of_kind(kind)) is not None:
                evidence = PolicyEvidence(
                    policy, self._contexts(policy), rollouts, places, outcomes, self.usage
                )
                tasks.append(self._policy_evidence(evidence, kind, needs))
        await _run_all(tasks)

    async def _text_evidence(
        self,
        kinds: Sequence[type[Need]],
        needs: NeedsByRollout,
        outcomes: Outcomes,
        places: Sequence[Place],
    ) -> None:
        """Add the evidence for these types of needs from the model of texts that provides it."""
        for kind in kinds:
            if (model := getattr(self.models, kind.model_kind)) is None:
                continue
            if kind is GroupGradesNeed:
                jobs = list(_group_jobs(needs, outcomes, places))
            else:
                jobs = [
                    Job(
                        each.requests,
                        [i],
                        partial(outcomes.store, i, each),
                        each.path,
                        each.combine,
                    )
                    for i, own in needs_of_type(needs, kind).items()
                    for each in own
                    if each.requests
                ]
            count = len(await exchange(partial(kind.call, model), jobs, outcomes))
            if kind.model_kind == "judge":
                self.usage.verdicts += count
            else:
                self.usage.pairs += count

    async def _policy_evidence(
        self, evidence: PolicyEvidence, kind: str, needs: NeedsByRollout
    ) -> None:
        if kind == "generator":  # the self-check is about log-probabilities
            await evidence.generated_answers(needs)
            return
        await self.check(evidence.policy)
        await _run_all([evidence.log_probabilities(needs), evidence.masked_answers(needs)])

    def _contexts(self, policy: Policy) -> Contexts:
        return Contexts(
            policy.tokenizer,
            self.prompt,
            policy.max_length,
            self.truncate,
            self.template,
            self.response_limit,
        )

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


def _digest(settings: object, policy: Policy) -> str:
    """Return a digest of settings and of the chat template of a policy."""
    template = getattr(policy.tokenizer, "chat_template", None)
    return blake2b(repr((settings, template)).encode(), digest_size=6).hexdigest()


def _group_jobs(
    needs: NeedsByRollout, outcomes: Outcomes, places: Sequence[Place]
) -> Iterator[Job]:
    """Yield the questions about each group whose members do not all have a grade in it."""
    members: dict[Any, dict[int, GroupGradesNeed]] = {}
    for i, own in needs_of_type(needs, GroupGradesNeed).items():
        for need in own:
            members.setdefault((places[i][0], need.component), {})[i] = need
    for group in members.values():
        grades = GroupGrades(list(group.values()))
        if all(grades.is_stored(outcomes.rollouts[i]) for i in group):
            continue

        def store(by_text: Mapping[str, Any], group: dict[int, GroupGradesNeed] = group) -> None:
            for i, need in group.items():
                outcomes.store(i, need, by_text[need.question.responses[0]])

        path = next(iter(group.values())).path
        yield Job(grades.questions, list(group), store, path, grades.verdicts)


def _unmet_needs(
    reward: HasNeeds, rollouts: Mapping[int, Rollout], earlier: NeedsByRollout | None = None
) -> dict[int, list[Need]]:
    """Return the needs of rollouts that their evidence does not meet, by position.

    A rollout whose needs raise an error has none: scoring raises the same error. `earlier` contains
    the needs that are not requested again. Whether a grade in a group is met, all members show.
    """
    needs: dict[int, list[Need]] = {}
    for i, rollout in rollouts.items():
        requested = set((earlier or {}).get(i, ()))
        try:
            with scoring_errors():
                unmet = [
                    need
                    for need in reward.needs(rollout)
                    if isinstance(need, GroupGradesNeed) or not need.is_met(rollout)
                ]
        except RolloutError:
            continue
        needs[i] = [need for need in unmet if need not in requested]
    return needs


def _places(rollouts: Sequence[Rollout], groups: Groups | None) -> list[Place]:
    """Return the place of each rollout; without `groups`, the rollouts' own keys form groups."""
    if groups is None:
        groups = group_by_key(rollouts)
    places: dict[int, Place] = {}
    for number, group in enumerate(groups):
        places.update({i: (number, position) for position, i in enumerate(group)})
    return [places.get(i, (("alone", i), 0)) for i in range(len(rollouts))]


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
