"""The handlers of the server: scores of rollouts, and numbers about pairs of texts.

A request cannot choose a file, a module, a URL or a template.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rag_rewards import __version__
from rag_rewards.errors import BackendError, DataError, RolloutError, RowError, ScoringError
from rag_rewards.evidence.protocols import Models
from rag_rewards.groups import group_by_key
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows.scored import error_fields, score_fields
from rag_rewards.scorer import Scorer, required_models
from rag_rewards.server.admission import Admission
from rag_rewards.server.loaded import Loaded, LoadedRecipe, check_available, unavailable
from rag_rewards.server.logs import log, short_message
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.request_bodies import (
    EntailmentRequest,
    HealthResponse,
    ModelsResponse,
    R,
    ScoreRequest,
    ScoreResponse,
    SimilarityRequest,
    decode_request,
)
from rag_rewards.server.request_errors import RequestError
from rag_rewards.server.telemetry import Telemetry
from rag_rewards.training import openrlhf
from rag_rewards.training.turn_sums import TurnSums

_ROW_ERRORS = (DataError, RowError, ScoringError)
"""Errors of the row itself, which the same request would raise again."""
_ENCODE = msgspec.json.Encoder().encode
RETRY_SECONDS = 5.0
"""Time between two attempts to load a recipe whose backend does not respond."""


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
        self.admission = Admission(options)
        self.telemetry = Telemetry(components, lambda: self.admission.waiting)
        self.components = tuple(components)
        self.ready: Loaded | None = None
        self.fault = ""
        self._load = load
        self._sums = TurnSums()

    async def start(self) -> None:
        """Load the recipe and its models.

        An error is raised and shown by /health. A backend that does not respond is tried again.
        """
        while self.ready is None:
            try:
                loaded = await asyncio.to_thread(
                    lambda: Loaded(self._load(), self.admission, self.telemetry)
                )
            except Exception as error:
                self.fault = f"{type(error).__name__}: {short_message(error)}"
                if not isinstance(error, BackendError):
                    raise
                log.warning("not ready: %s", self.fault)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.admission.has_models = loaded.models != Models()
                self.ready, self.fault = loaded, ""

    async def stop(self) -> None:
        """Release the models, and send the remaining traces."""
        if self.ready is not None:
            await self.ready.models.close()
        await asyncio.to_thread(self.telemetry.tracing.close)

    async def score_rows(self, body: bytes) -> bytes:
        """Score rollouts. A request contains all rollouts of a group."""
        recipe = self._loaded_recipe()
        request = await self._decode(ScoreRequest, body)
        name = recipe.scorer.reward.name
        if request.recipe not in (None, name):
            message = f"this server serves {name!r}, not {request.recipe!r}: leave out `recipe`"
            raise RequestError(404, "UnknownRecipeError", message, "recipe")
        self._require_models(request.rollouts)
        groups = group_by_key(request.rollouts)
        results = await recipe.score(request.rollouts, groups, len(body))
        check_available(results)
        scores = list(map(score_data, request.rollouts, results))
        return _ENCODE(ScoreResponse(scores, recipe.signature))

    async def score_samples(self, body: bytes) -> bytes:
        """Score samples in the remote reward protocol of OpenRLHF."""
        recipe = self._loaded_recipe()
        if reason := openrlhf.unsupported_reason(recipe.scorer.reward):
            raise RequestError(409, "GroupError", reason)
        try:
            results = await self._score_samples(recipe, body)
            check_available(results)
            openrlhf.raise_failure(results)
            self._sums.check([result for result in results if isinstance(result, Score)])
            response = openrlhf.response_of(
                results, self.components, self.options.error_value, recipe.scorer.decides_answers
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

    async def _score_samples(self, recipe: LoadedRecipe, body: bytes) -> list[ScoreOrError]:
        request = await self._decode(openrlhf.SampleRequest, body)
        samples = await self.admission.run(len(body), lambda _: openrlhf.rollouts_of(request))
        rollouts = [sample for sample in samples if isinstance(sample, Rollout)]
        self._require_models(rollouts)
        groups = [[i] for i in range(len(rollouts))]
        scores = iter(await recipe.score(rollouts, groups, len(body)))
        self.telemetry.record([each for each in samples if isinstance(each, RolloutError)])
        return [next(scores) if isinstance(each, Rollout) else each for each in samples]

    async def entail(self, body: bytes) -> bytes:
        """Return the probability that each premise entails its hypothesis."""
        pairs = self._loaded().pairs
        return _ENCODE(await pairs.entailment(await self._decode(EntailmentRequest, body)))

    async def compare(self, body: bytes) -> bytes:
        """Return the similarity of each text to its reference."""
        pairs = self._loaded().pairs
        return _ENCODE(await pairs.similarity(await self._decode(SimilarityRequest, body)))

    async def describe_models(self) -> ModelsResponse:
        """Return the entailment and the similarity model of the server."""
        # A thread, because a model behind another server sends a request for its fingerprint.
        return await asyncio.to_thread(self._loaded().pairs.description)

    def health(self) -> tuple[int, HealthResponse]:
        """Return status 200 if the server can score, else 503 with the reason.

        The route requires no token. If the server has one, the reason is only the error's type.
        """
        states: dict[str, str] = {}
        reason = self.fault or "loading"
        if self.ready is not None:
            faults = self.ready.faults.items()
            reason = next((f"{kind}: {short_message(error)}" for kind, error in faults), "")
            states = {kind: each.state for kind, each in self.ready.backends.items()}
            if not reason:
                return 200, HealthResponse(True, recipe=self.ready.name, backends=states)
        if self.options.token is not None:
            reason = reason.partition(":")[0]
        return 503, HealthResponse(False, reason=reason, backends=states)

    def status(self) -> dict[str, Any]:
        """Return the data of the status page."""
        recipe = self.ready.recipe if self.ready else None
        reward = recipe.scorer.reward if recipe else None
        loaded = {
            "recipe": reward.name if reward else None,
            "equation": reward.equation if reward else None,
            "models": self.ready.fingerprints if self.ready else {},
            "signature": recipe.signature if recipe else None,
            "version": __version__,
        }
        code, health = self.health()
        return {
            "health": msgspec.to_builtins(health) | {"status": code},
            "loaded": loaded,
            **self.telemetry.status(self.admission.waiting),
        }

    async def _decode(self, kind: type[R], body: bytes) -> R:
        return await self.admission.run(
            len(body), lambda _: decode_request(kind, body, self.options)
        )

    def _loaded(self) -> Loaded:
        if self.ready is None:
            reason = self.fault or "loading"
            raise RequestError(503, "NotReady", reason, retry_after=RETRY_SECONDS)
        return self.ready

    def _loaded_recipe(self) -> LoadedRecipe:
        recipe = self._loaded().recipe
        if recipe is None:
            message = "this server has no recipe: start it with --recipe NAME"
            raise RequestError(404, "UnknownRecipeError", message)
        return recipe

    def _require_models(self, rollouts: Sequence[Rollout]) -> None:
        """Raise 503 if rollouts require a model that cannot be used."""
        recipe, faults = self._loaded_recipe(), self._loaded().faults
        if faults:
            for kind in faults.keys() & required_models(recipe.scorer.reward, rollouts):
                raise unavailable(faults[kind])


def score_data(rollout: Rollout, result: ScoreOrError) -> dict[str, Any]:
    """Return a score or an error as a part of the response of POST /score."""
    return score_fields(rollout, result) if isinstance(result, Score) else error_fields(result)
