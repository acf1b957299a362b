"""The handlers of the server: scores of rollouts, and numbers about pairs of texts.

msgspec decodes request bodies; FastAPI provides the routes (`rag_rewards.server.routes`). A request
cannot choose a file, a module, a URL or a template.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from rag_rewards import __version__
from rag_rewards.errors import (
    BackendError,
    DataError,
    RolloutError,
    RowError,
    ScoringError,
    needs_extra,
)
from rag_rewards.evidence.protocols import Models
from rag_rewards.groups import group_by_key
from rag_rewards.models.health import BackendUnavailable, Health, healths, unavailable_cause
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows.scored import error_fields, score_fields
from rag_rewards.scorer import Scorer, required_models
from rag_rewards.server import openrlhf
from rag_rewards.server.batching import INLINE_BYTES, Batcher, Workers
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.pair_models import (
    EntailmentRequest,
    MissingModel,
    PairModels,
    SimilarityRequest,
)
from rag_rewards.server.request_bodies import BodyReader
from rag_rewards.server.request_errors import RequestError
from rag_rewards.server.responder import BUSY_SECONDS, Responder, json_response
from rag_rewards.server.telemetry import Telemetry, log, short_message
from rag_rewards.training.turn_sums import TurnSums

with needs_extra("server"):
    from fastapi import Response


_ROW_ERRORS = (DataError, RowError, ScoringError)
"""Errors of the row itself, which the same request would raise again."""
_ENCODE = msgspec.json.Encoder().encode
RETRY_SECONDS = 5.0
"""Time between two attempts to load a recipe whose backend does not respond."""


@dataclass(frozen=True)
class LoadedRecipe:
    """The scorer of a server after loading, with its batcher and its signature."""

    scorer: Scorer
    batcher: Batcher
    signature: str


@dataclass(frozen=True)
class Loaded:
    """What a server has loaded: a recipe if it has one, and models that other processes share."""

    models: Models
    pairs: PairModels
    backends: Mapping[str, Health]
    recipe: LoadedRecipe | None = None

    @property
    def name(self) -> str | None:
        """The name of the recipe."""
        return None if self.recipe is None else self.recipe.scorer.reward.name

    @property
    def waiting(self) -> int:
        """Number of rollouts and pairs that wait for a model."""
        return self.pairs.waiting + (0 if self.recipe is None else self.recipe.batcher.waiting)


class RewardServer:
    """A recipe, or models that other processes share, and the handlers of their routes.

    `load` creates the scorer, or the models of a server without a recipe, in the background after
    the start. Until then, /health returns 503.
    """

    def __init__(
        self,
        load: Callable[[], Scorer | Models],
        components: Sequence[str],
        options: ServerOptions,
    ) -> None:
        self.options = options
        self.telemetry = Telemetry(components)
        self.components = tuple(components)
        self.ready: Loaded | None = None
        self.fault = ""
        self._load = load
        self.workers = Workers()
        self._bodies = BodyReader(options, self.workers)
        self._entailments = msgspec.json.Decoder(EntailmentRequest)
        self._similarities = msgspec.json.Decoder(SimilarityRequest)
        self._sums = TurnSums()
        self.responder = Responder(options, self.telemetry, self._pending_bytes, self._is_prompt)

    async def start(self) -> None:
        """Load the recipe and its models.

        An error is raised and shown by /health. A backend that does not respond is tried again.
        """
        while self.ready is None:
            try:
                loaded = await asyncio.to_thread(self._load_all)
            except Exception as error:
                self.fault = f"{type(error).__name__}: {short_message(error)}"
                if not isinstance(error, BackendError):
                    raise
                log.warning("not ready: %s", self.fault)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.ready, self.fault = loaded, ""

    async def stop(self) -> None:
        """Release the models, and send the remaining traces."""
        if self.ready is not None:
            await self.ready.models.close()
        await asyncio.to_thread(self.telemetry.tracing.close)

    def _load_all(self) -> Loaded:
        source = self._load()
        if isinstance(source, Models):
            _ = source.fingerprints  # requests those of models behind servers
            return Loaded(source, self._pair_models(source), self._backends(source))
        recipe = LoadedRecipe(source, self._batcher(source), source.signature)
        models = source.models
        return Loaded(models, self._pair_models(models), self._backends(models), recipe)

    def _backends(self, models: Models) -> Mapping[str, Health]:
        """Return the health of the models on servers, whose failures are refused at once."""
        backends = healths(models)
        if self.options.breaker_failures:
            for health in backends.values():
                health.failures = self.options.breaker_failures
                health.seconds = self.options.breaker_seconds
        for kind, health in backends.items():
            self.telemetry.watch(kind, health)
        return backends

    def _pair_models(self, models: Models) -> PairModels:
        return PairModels(models, self.options.batch_rows)

    def _batcher(self, scorer: Scorer) -> Batcher:
        options = self.options
        return Batcher(
            scorer,
            self.telemetry,
            wait=options.batch_wait,
            rows=options.batch_rows,
            in_flight=options.in_flight,
            workers=self.workers,
        )

    # --- routes ------------------------------------------------------------------------------

    async def score_rows(self, body: bytes) -> bytes:
        """Handle POST /score. An unscored row has an error in place of a score."""
        loaded = self._loaded_recipe()
        request = await self._bodies.decode_rows(body)
        name = loaded.scorer.reward.name
        if request.recipe not in (None, name):
            message = f"this server serves {name!r}, not {request.recipe!r}: leave out `recipe`"
            raise RequestError(404, "UnknownRecipeError", message, "recipe")
        self._bodies.check_rows(len(request.rollouts), "rollouts")
        self._loaded()  # checks the limits again, after the wait for a thread
        self._require_models(request.rollouts)
        groups = group_by_key(request.rollouts)
        results = await loaded.batcher.score(request.rollouts, groups, len(body))
        _check_available(results)
        scores = list(map(score_data, request.rollouts, results))
        return _ENCODE({"scores": scores, "signature": loaded.signature})

    async def score_samples(self, body: bytes) -> bytes:
        """Handle POST /openrlhf: return rewards in the format of OpenRLHF."""
        loaded = self._loaded_recipe()
        if reason := openrlhf.unsupported_reason(loaded.scorer.reward):
            raise RequestError(409, "GroupError", reason)
        try:
            samples = await self._bodies.decode_samples(body)
            self._loaded()  # checks the limits again, after the wait for a thread
            results = await self._score_samples(loaded.batcher, samples, len(body))
            _check_available(results)
            openrlhf.raise_failure(results)
            self._sums.check([result for result in results if isinstance(result, Score)])
            response = openrlhf.response_of(
                results,
                self.components,
                self.options.error_value,
                loaded.scorer.decides_answers,
            )
        except RolloutError as error:
            status = 422 if isinstance(error, _ROW_ERRORS) else 503
            raise RequestError(
                status, type(error).__name__, short_message(error), error.path
            ) from None
        substituted = sum(isinstance(result, RolloutError) for result in results)
        self.telemetry.substituted.inc(substituted)
        # Python's json writes a missing number as NaN, which the client's json reads.
        return json.dumps(msgspec.structs.asdict(response)).encode()

    async def _score_samples(
        self, batcher: Batcher, samples: Sequence[Rollout | RolloutError], size: int
    ) -> list[ScoreOrError]:
        rollouts = [sample for sample in samples if isinstance(sample, Rollout)]
        self._require_models(rollouts)
        scores = iter(await batcher.score(rollouts, [[i] for i in range(len(rollouts))], size))
        self.telemetry.record([each for each in samples if isinstance(each, RolloutError)])
        return [next(scores) if isinstance(each, Rollout) else each for each in samples]

    async def entail(self, body: bytes) -> bytes:
        """Handle POST /entailment."""
        self._loaded()
        request = await self._bodies.decode_pairs(self._entailments, body)
        with self._pending(len(body)):
            return await _pair_results(self._loaded().pairs.entailment(request))

    async def compare(self, body: bytes) -> bytes:
        """Handle POST /similarity."""
        self._loaded()
        request = await self._bodies.decode_pairs(self._similarities, body)
        with self._pending(len(body)):
            return await _pair_results(self._loaded().pairs.similarity(request))

    async def describe_models(self) -> Response:
        """Handle GET /models."""
        try:
            # A thread, because a model behind another server sends a request for its fingerprint.
            description = await asyncio.to_thread(self._loaded().pairs.description)
        except Exception as error:
            return self.responder.failure(error)
        return json_response(_ENCODE(description))

    def health(self) -> tuple[int, dict[str, Any]]:
        """Return status 200 if the server can score, else 503 with the reason.

        The route requires no token. If the server has one, the reason is only the error's type.
        """
        loaded = self.ready
        reason = self.fault or "loading"
        states: dict[str, Any] = {}
        if loaded is not None:
            reason = next((f"{kind}: {short_message(error)}" for kind, error in self._faults()), "")
            if loaded.backends:
                states["backends"] = {kind: each.state for kind, each in loaded.backends.items()}
            if not reason:
                return 200, {"ready": True, "recipe": loaded.name, **states}
        if self.options.token is not None:
            reason = reason.partition(":")[0]
        return 503, {"ready": False, "reason": reason, **states}

    def status(self) -> dict[str, Any]:
        """Return the data of the status page."""
        recipe = self.ready.recipe if self.ready else None
        scorer = recipe.scorer if recipe else None
        loaded = {
            "recipe": scorer.reward.name if scorer else None,
            "equation": scorer.reward.equation if scorer else None,
            "models": self._fingerprints(),
            "signature": recipe.signature if recipe else None,
            "version": __version__,
        }
        code, health = self.health()
        waiting = self.ready.waiting if self.ready else 0
        return {
            "health": health | {"status": code},
            "loaded": loaded,
            **self.telemetry.status(waiting),
        }

    # --- checks -------------------------------------------------------------------------------

    def _loaded(self) -> Loaded:
        if self.ready is None:
            reason = self.fault or "loading"
            raise RequestError(503, "NotReady", reason, retry_after=RETRY_SECONDS)
        if self.ready.waiting > self.options.max_waiting:
            reason = f"{self.ready.waiting:,} rollouts or pairs are waiting"
            raise RequestError(503, "Busy", reason, retry_after=BUSY_SECONDS)
        if self._pending_bytes() > self.options.max_pending:
            reason = "other requests are being scored"
            raise RequestError(503, "Busy", reason, retry_after=BUSY_SECONDS)
        return self.ready

    def _pending_bytes(self) -> int:
        return self.workers.pending_bytes

    @contextmanager
    def _pending(self, size: int) -> Iterator[None]:
        """Count the size of a request while it is answered."""
        self.workers.add_pending(size)
        try:
            yield
        finally:
            self.workers.add_pending(-size)

    def _is_prompt(self, size: int) -> bool:
        """Return whether a body of this size is scored directly, without a model or a thread."""
        return size <= INLINE_BYTES and not (self.ready and self.ready.models != Models())

    def _require_models(self, rollouts: Sequence[Rollout]) -> None:
        """Raise 503 if rollouts require a model that cannot be used."""
        recipe, faults = self._loaded().recipe, dict(self._faults())
        if recipe is not None and faults:
            for kind in faults.keys() & required_models(recipe.scorer.reward, rollouts):
                raise _unavailable(faults[kind])

    def _faults(self) -> Iterator[tuple[str, BackendUnavailable]]:
        """Yield the models that cannot be used, with their errors."""
        for kind, health in (self.ready.backends if self.ready else {}).items():
            if (error := health.unavailable) is not None:
                yield kind, error

    def _loaded_recipe(self) -> LoadedRecipe:
        recipe = self._loaded().recipe
        if recipe is None:
            message = "this server has no recipe: start it with --recipe NAME"
            raise RequestError(404, "UnknownRecipeError", message)
        return recipe

    def _fingerprints(self) -> dict[str, str]:
        if self.ready is None:
            return {}
        recipe = self.ready.recipe
        return self.ready.models.fingerprints if recipe is None else recipe.scorer.fingerprints


def _check_available(results: Iterable[ScoreOrError]) -> None:
    """Raise RequestError with status 503 if a model could not be used for a rollout."""
    for result in results:
        if isinstance(result, RolloutError) and (error := unavailable_cause(result)):
            raise _unavailable(error)


def _unavailable(error: BackendUnavailable) -> RequestError:
    """Return the error of a request whose model cannot be used."""
    return RequestError(
        503, "BackendUnavailable", short_message(error), retry_after=error.retry_after
    )


def score_data(rollout: Rollout, result: ScoreOrError) -> dict[str, Any]:
    """Return a score or an error as a part of the response of POST /score."""
    return score_fields(rollout, result) if isinstance(result, Score) else error_fields(result)


async def _pair_results(results: Coroutine[Any, Any, dict[str, Any]]) -> bytes:
    """Return the numbers of a request for pairs. A failure of the model is not temporary."""
    try:
        return _ENCODE(await results)
    except MissingModel as error:
        raise RequestError(404, "UnknownModelError", str(error)) from None
    except BackendUnavailable as error:
        raise _unavailable(error) from None
    except BackendError as error:
        raise RequestError(424, "BackendError", short_message(error)) from None
