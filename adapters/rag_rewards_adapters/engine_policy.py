"""The rollout engine of a trainer as a policy: it scores and generates with the current weights.

No further model is loaded. The module of each trainer (verl/engine.py, openrlhf/engine.py) adds
how its engine is called.
"""

from __future__ import annotations

import asyncio
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import (
    Capabilities,
    GenerateAnswer,
    GenerateRequest,
    ScoreAnswer,
    ScoreRequest,
    Tokenizer,
)
from rag_rewards.models.calls import run_concurrently
from rag_rewards.models.selfcheck import selfcheck
from rag_rewards.models.sequences import (
    SequenceResult,
    TokenSequence,
    check_request,
    distinct_sequences,
    score_answer,
)

T = TypeVar("T")

_ATTEMPTS = 3
"""How often a group is scored when the weights change in between, before it is an error."""


class WeightsChangedError(Exception):
    """The weights changed while a group was scored. The text names the versions, if known."""


class EnginePolicy(ABC):
    """A Policy on a trainer's rollout engine, whose weights change during training.

    All log-probabilities of a group come from the same weights. If the weights change while a
    group is scored, the whole group is scored again; after three attempts it is a BackendError.

    The object belongs to the event loop in which it is created.
    """

    path: str
    """How the log-probabilities are computed, as part of the evidence."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._home = weakref.ref(asyncio.get_running_loop())

    # --- the engine ----------------------------------------------------------------------------

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """The engine and its model, as part of the signature."""

    @property
    @abstractmethod
    def precision(self) -> str:
        """The data type of the weights, such as `bfloat16`."""

    @property
    @abstractmethod
    def context_length(self) -> int | None:
        """The context length of the engine in tokens, or None if it is not configured."""

    @abstractmethod
    async def _current_weights(self) -> Any:
        """Return a value that changes when the weights change."""

    @abstractmethod
    async def _score_once(
        self, group: Sequence[TokenSequence]
    ) -> tuple[list[SequenceResult], str | int | None]:
        """Return the log-probabilities of each sequence, and the version of the weights.

        Raises WeightsChangedError when not all of them come from the same weights.
        """

    @abstractmethod
    async def _generate(self, request: GenerateRequest) -> GenerateAnswer:
        """Generate one answer."""

    # --- the protocol --------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """The engine generates the rollouts, and does not reuse prefixes for log-probabilities."""
        return Capabilities(precision=self.precision, is_live=True)

    @property
    def max_length(self) -> int | None:
        """One less than the context length: a request for log-probabilities generates a token."""
        return None if self.context_length is None else self.context_length - 1

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Return the log-probabilities of each request, or its BackendError."""
        return await run_concurrently(
            _result_or_error(self._score(request)) for request in requests
        )

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        """Return one answer for each request, or its BackendError."""
        return await run_concurrently(
            _result_or_error(self._generate(request)) for request in requests
        )

    async def selfcheck(self) -> None:
        """Run the self-check of all policies, in the event loop that the engine belongs to."""
        home = self._home()
        if home is None or home is asyncio.get_running_loop():
            await self._check()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._check(), home))

    async def close(self) -> None:  # noqa: B027 (no engine has to be closed)
        """Do nothing: the trainer owns the engine."""

    # --- changes of weights --------------------------------------------------------------------

    async def _check(self) -> None:
        """Run the self-check, and repeat it when the weights changed during a failed one."""
        for attempt in range(1, _ATTEMPTS + 1):
            before = await self._current_weights()
            try:
                return await selfcheck(self)
            except BackendError:
                if attempt == _ATTEMPTS or await self._current_weights() == before:
                    raise

    async def _score(self, request: ScoreRequest) -> ScoreAnswer:
        check_request(request, self.max_length, self.fingerprint)
        group = distinct_sequences(request)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                scored, version = await self._score_once(group)
            except WeightsChangedError as error:
                if attempt == _ATTEMPTS:
                    raise BackendError(
                        f"{self.fingerprint}: the weights changed between the two terms of a "
                        f"difference, {_ATTEMPTS} times in a row{_detail(error)}"
                    ) from None
                continue
            return score_answer(
                request,
                list(zip(group, scored, strict=True)),
                source=self.fingerprint,
                path=self.path,
                weight_version=version,
            )
        raise AssertionError("the last attempt returns or raises")  # pragma: no cover


def _detail(error: WeightsChangedError) -> str:
    return f" ({error})" if str(error) else ""


async def _result_or_error(work: Awaitable[T]) -> T | Exception:
    try:
        return await work
    except BackendError as error:
        return error
