"""What a server has loaded: a recipe, and models that other processes share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from rag_rewards import __version__
from rag_rewards.errors import BackendError, RolloutError, describe, is_control_flow
from rag_rewards.evidence.protocols import ContradictionModel, Models
from rag_rewards.groups import Groups
from rag_rewards.models.health import BackendUnavailable, healths, unavailable_cause
from rag_rewards.rollout import Rollout, ScoreOrError
from rag_rewards.scorer import Scorer
from rag_rewards.server.admission import Admission
from rag_rewards.server.batching import Batcher
from rag_rewards.server.logs import log, short_message
from rag_rewards.server.request_bodies import (
    EntailmentRequest,
    EntailmentResponse,
    ModelDescription,
    ModelsResponse,
    Pair,
    SimilarityRequest,
    SimilarityResponse,
)
from rag_rewards.server.request_errors import RequestError
from rag_rewards.server.telemetry import Telemetry

THREAD_BYTES = 1 << 20
"""Size of a batch from which a recipe with models scores it in a thread."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Job:
    """The rollouts of a request, their groups, and the size of its body in bytes."""

    rollouts: Sequence[Rollout]
    groups: Groups
    size: int


class LoadedRecipe:
    """The scorer of a server. A recipe with models scores several requests at once."""

    def __init__(self, scorer: Scorer, admission: Admission, telemetry: Telemetry) -> None:
        options = admission.options
        self.scorer, self.signature = scorer, scorer.signature
        self.batcher = Batcher(
            self._score_jobs,
            admission,
            telemetry,
            rows=options.batch_rows,
            wait=options.batch_ms / 1000,
            in_flight=options.in_flight,
        )
        self._admission, self._telemetry = admission, telemetry

    async def score(
        self, rollouts: Sequence[Rollout], groups: Groups, size: int
    ) -> list[ScoreOrError]:
        """Return a score or an error for each rollout; `size` is that of the body in bytes.

        An unexpected exception becomes the error of each rollout.
        """
        job = _Job(rollouts, groups, size)
        try:
            if self.scorer.has_models:
                results = await self.batcher(job, len(rollouts))
            else:
                results = await self._admission.run(size, lambda check: self._score(job, check))
        except BaseException as error:
            if is_control_flow(error) or isinstance(error, RequestError):
                raise
            results = [_failure(error)] * len(rollouts)
        self._telemetry.record(results)
        return results

    def _score(self, job: _Job, check: Callable[[], None]) -> list[ScoreOrError]:
        """Score one group after the other. `check` raises an error if the request has ended."""
        results: dict[int, ScoreOrError] = {}
        for group in job.groups:
            check()
            members = [job.rollouts[i] for i in group]
            scores = self.scorer.score_each(members, [range(len(members))])
            results.update(zip(group, scores, strict=True))
        return [results[i] for i in range(len(job.rollouts))]

    async def _score_jobs(self, jobs: Sequence[_Job]) -> list[list[ScoreOrError]]:
        """Score the rollouts of several requests together."""
        rollouts: list[Rollout] = []
        groups: list[list[int]] = []
        for job in jobs:
            groups += [[len(rollouts) + i for i in group] for group in job.groups]
            rollouts += job.rollouts
        if (size := sum(job.size for job in jobs)) < THREAD_BYTES:
            results = await self.scorer.score_each_async(rollouts, groups)
        else:  # reading the text would block other connections
            results = await self._admission.run(
                size, lambda _: self.scorer.score_each(rollouts, groups)
            )
        rest = iter(results)
        return [list(islice(rest, len(job.rollouts))) for job in jobs]


def _failure(error: BaseException) -> RolloutError:
    """Return the error of each rollout of a request that failed as a whole."""
    if isinstance(error, RolloutError):
        return error
    log.exception("scoring failed", exc_info=error)
    return BackendError(describe(error))


class PairModels:
    """The entailment and the similarity model of a server, for other processes.

    Requests that arrive while a model is busy form one batch.
    """

    def __init__(self, models: Models, admission: Admission, telemetry: Telemetry) -> None:
        def batcher(
            model: Callable[[Sequence[Pair]], Awaitable[Sequence[T | Exception]]],
        ) -> Batcher[Sequence[Pair], Sequence[T | Exception]]:
            async def call(jobs: Sequence[Sequence[Pair]]) -> list[list[T | Exception]]:
                all_pairs = [pair for pairs in jobs for pair in pairs]
                results = await model(all_pairs)
                if len(results) != len(all_pairs):
                    reason = f"{len(results)} results for {len(all_pairs)} pairs"
                    raise BackendError(f"the model returned {reason}")
                rest = iter(results)
                return [list(islice(rest, len(pairs))) for pairs in jobs]

            return Batcher(call, admission, telemetry, rows=admission.options.batch_rows)

        entailment, similarity = models.entailment, models.similarity
        self._models = models
        self._entail = batcher(entailment.entail) if entailment else None
        self._similar = batcher(similarity.similarity) if similarity else None
        self._both = None
        if isinstance(entailment, ContradictionModel):
            self._both = batcher(entailment.entail_and_contradict)

    def description(self) -> ModelsResponse:
        """Return the version of the server, and the fingerprint of each model."""
        entailment, similarity = self._models.entailment, self._models.similarity
        return ModelsResponse(
            __version__,
            None if entailment is None else ModelDescription(entailment.fingerprint),
            None if similarity is None else ModelDescription(similarity.fingerprint),
        )

    async def entailment(self, request: EntailmentRequest) -> EntailmentResponse:
        """Return the probabilities of entailment and, on request, of contradiction."""
        missing = "no entailment model: start it with --nli MODEL"
        if not request.contradiction or self._entail is None:
            return EntailmentResponse(await _numbers(self._entail, request.pairs, missing))
        if self._both is None:
            message = "the entailment model has no label for contradiction"
            raise RequestError(424, "BackendError", message)
        both = await _numbers(self._both, request.pairs, missing)
        return EntailmentResponse([first for first, _ in both], [second for _, second in both])

    async def similarity(self, request: SimilarityRequest) -> SimilarityResponse:
        """Return the similarities of the pairs."""
        missing = "no similarity model: start it with --similarity MODEL"
        return SimilarityResponse(await _numbers(self._similar, request.pairs, missing))


async def _numbers(
    batcher: Batcher[Sequence[Pair], Sequence[T | Exception]] | None,
    pairs: Sequence[Pair],
    missing: str,
) -> list[T]:
    """Return the result of each pair. The failure of the model is not temporary."""
    if batcher is None:
        raise RequestError(404, "UnknownModelError", f"this server has {missing}")
    values: list[T] = []
    try:
        for result in await batcher(pairs, len(pairs)):
            if isinstance(result, Exception):
                raise result
            values.append(result)
    except BaseException as error:
        if is_control_flow(error) or isinstance(error, RequestError):
            raise
        if isinstance(error, BackendUnavailable):
            raise unavailable(error) from None
        if not isinstance(error, BackendError):
            error = BackendError(f"the model failed: {error}")
        raise RequestError(424, "BackendError", short_message(error)) from None
    return values


class Loaded:
    """The models of a server, and its recipe if it has one."""

    def __init__(self, source: Scorer | Models, admission: Admission, telemetry: Telemetry) -> None:
        options = admission.options
        self.recipe: LoadedRecipe | None = None
        self.fingerprints = source.fingerprints
        """The fingerprints of the models, computed once: that of a policy reads all weights."""
        if isinstance(source, Models):
            self.models = source
        else:
            self.models = source.models
            self.recipe = LoadedRecipe(source, admission, telemetry)
        self.pairs = PairModels(self.models, admission, telemetry)
        self.backends = healths(self.models)
        for kind, health in self.backends.items():
            telemetry.watch(kind, health)
            if options.breaker_failures:
                health.failures, health.seconds = options.breaker_failures, options.breaker_seconds

    @property
    def name(self) -> str | None:
        """The name of the recipe."""
        return None if self.recipe is None else self.recipe.scorer.reward.name

    @property
    def faults(self) -> dict[str, BackendUnavailable]:
        """The models that cannot be used, with their errors."""
        errors = {kind: health.unavailable for kind, health in self.backends.items()}
        return {kind: error for kind, error in errors.items() if error is not None}


def check_available(results: Iterable[ScoreOrError]) -> None:
    """Raise RequestError with status 503 if a model could not be used for a rollout."""
    for result in results:
        if isinstance(result, RolloutError) and (error := unavailable_cause(result)):
            raise unavailable(error)


def unavailable(error: BackendUnavailable) -> RequestError:
    """Return the error of a request whose model cannot be used."""
    message = short_message(error)
    return RequestError(503, "BackendUnavailable", message, retry_after=error.retry_after)
