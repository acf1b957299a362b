"""OpenRLHF's own vLLM engine as a policy: it scores and generates with the weights that it serves.

No model is loaded for it. An agent executor gets the engine; log-probabilities of a given text are
vLLM's prompt log-probabilities, read as for an engine of one's own (rag_rewards.backends.vllm).
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from rag_rewards.backends.groups import Ask, Scored, answer, asks, refuse
from rag_rewards.backends.http import together
from rag_rewards.backends.selfcheck import selfcheck
from rag_rewards.backends.vllm import PLAIN, SAMPLING, generated, values_of
from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import (
    Capabilities,
    GenerateAnswer,
    GenerateRequest,
    ScoreAnswer,
    ScoreRequest,
    TokenIds,
    Tokenizer,
)

T = TypeVar("T")

_CHANGES = 3
"""How often a group is asked anew when the weights changed while it was scored."""


class EnginePolicy:
    """A Policy on the engine that an agent executor gets as `llm_engine`.

    engine      whatever has its `generate`, and vLLM's asynchronous engine as `llm`
    tokenizer   the trainer's
    parameters  vLLM's SamplingParams

    All values of one answer come from the same weights: what an update of weights tears apart is
    asked again, and is a BackendError when they keep changing.
    """

    def __init__(self, engine: Any, tokenizer: Tokenizer, parameters: Callable[..., Any]) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.parameters = parameters
        self.updates = Updates(engine.llm)
        self._config = engine.llm.model_config
        self._home = weakref.ref(asyncio.get_running_loop())

    @property
    def fingerprint(self) -> str:
        return f"openrlhf vllm {self._config.model} {self.capabilities.precision}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(precision=str(self._config.dtype).removeprefix("torch."))

    @property
    def max_length(self) -> int | None:
        """One less than the engine's: a request for log-probabilities also generates a token."""
        return int(self._config.max_model_len) - 1

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        return await together(_caught(self._score(request)) for request in requests)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        return await together(_caught(self._generate(request)) for request in requests)

    async def selfcheck(self) -> None:
        """The shared check, on the loop that the engine belongs to; again if weights changed."""
        home = self._home()
        if home is None or home is asyncio.get_running_loop():
            await self._check()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._check(), home))

    async def close(self) -> None:
        """The engine is the trainer's, and ends with it."""

    async def _check(self) -> None:
        for last in (False, False, True):
            before = self.updates.count
            try:
                return await selfcheck(self)
            except BackendError:
                if last or self.updates.count == before:
                    raise

    async def _score(self, request: ScoreRequest) -> ScoreAnswer:
        """A group, all of its sequences with the same weights."""
        refuse(request, self.max_length, self.fingerprint)
        group = asks(request)
        for _ in range(_CHANGES):
            before = self.updates.count
            scored = await together(self._scored(ask) for ask in group)
            if self.updates.count == before:
                return answer(
                    request,
                    list(zip(group, scored, strict=True)),
                    who=self.fingerprint,
                    path="openrlhf vllm",
                    weight_version=None,
                )
        raise BackendError(
            f"{self.fingerprint}: the weights changed between the two terms of a difference, "
            f"{_CHANGES} times in a row"
        )

    async def _scored(self, ask: Ask) -> Scored:
        output = await self._ask(ask.tokens, {**PLAIN, "detokenize": False})
        values = values_of(output.prompt_logprobs, ask.response, self.fingerprint)
        return Scored(values, len(ask.tokens))

    async def _generate(self, request: GenerateRequest) -> GenerateAnswer:
        parameters = {
            **SAMPLING,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stop": list(request.stop),
            "seed": request.seed,
        }
        output = await self._ask(request.prompt, parameters)
        return generated(output.outputs[0], None, self.fingerprint)

    async def _ask(self, tokens: TokenIds, parameters: dict[str, Any]) -> Any:
        """The engine's own output for these tokens."""
        try:
            output = await self.engine.generate(list(tokens), self.parameters(**parameters))
        except Exception as error:  # whatever an engine raises, for this request alone
            raise BackendError(f"{self.fingerprint}: {type(error).__name__}: {error}") from error
        if output is None:
            raise BackendError(f"{self.fingerprint}: the engine ended without an answer")
        return output


class Updates:
    """Counts the updates of an engine's weights, of which the engine itself tells nothing.

    The trainer sends them through `collective_rpc`, as `update_weight` or
    `update_weight_cuda_ipc`; with partial rollouts it does so while requests are held.
    """

    def __init__(self, llm: Any) -> None:
        self.count = 0
        self._call = llm.collective_rpc
        llm.collective_rpc = self._counted

    async def _counted(self, method: Any, *arguments: Any, **named: Any) -> Any:
        if str(method).startswith("update_weight"):
            self.count += 1
        return await self._call(method, *arguments, **named)


async def _caught(work: Awaitable[T]) -> T | Exception:
    try:
        return await work
    except BackendError as error:
        return error
