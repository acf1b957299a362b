"""OpenRLHF's own vLLM engine as a policy.

The log-probabilities of a given text are vLLM's prompt log-probabilities, as for an engine of the
user (rag_rewards.models.vllm).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import GenerateAnswer, GenerateRequest, TokenIds, Tokenizer
from rag_rewards.models.calls import run_concurrently
from rag_rewards.models.policy_server import sampling_parameters
from rag_rewards.models.sequences import SequenceResult, TokenSequence
from rag_rewards.models.vllm.prompt_logprobs import (
    ENGINE_PLAIN,
    generate_answer,
    response_logprobs,
)
from rag_rewards_adapters.engine_policy import EnginePolicy, WeightsChangedError


class OpenRlhfEnginePolicy(EnginePolicy):
    """A Policy on the engine that an agent executor gets as `llm_engine`.

    engine      an object with the engine's `generate`, and vLLM's asynchronous engine as `llm`
    tokenizer   the tokenizer of the trainer
    parameters  vLLM's SamplingParams
    """

    path = "openrlhf vllm"

    def __init__(self, engine: Any, tokenizer: Tokenizer, parameters: Callable[..., Any]) -> None:
        super().__init__(tokenizer)
        self.engine = engine
        self.parameters = parameters
        self.updates = UpdateCounter(engine.llm)
        self._config = engine.llm.model_config

    @property
    def fingerprint(self) -> str:
        return f"openrlhf vllm {self._config.model} {self.precision}"

    @property
    def precision(self) -> str:
        return str(self._config.dtype).removeprefix("torch.")

    @property
    def context_length(self) -> int:
        return int(self._config.max_model_len)

    async def _current_weights(self) -> int:
        return self.updates.count

    async def _score_once(
        self, group: Sequence[TokenSequence]
    ) -> tuple[list[SequenceResult], None]:
        before = self.updates.count
        scored = await run_concurrently(self._score_sequence(ask) for ask in group)
        if self.updates.count != before:
            raise WeightsChangedError
        return scored, None

    async def _score_sequence(self, ask: TokenSequence) -> SequenceResult:
        output = await self._call(ask.tokens, ENGINE_PLAIN)
        values = response_logprobs(output.prompt_logprobs, ask.response, self.fingerprint)
        return SequenceResult(values, len(ask.tokens))

    async def _generate(self, request: GenerateRequest) -> GenerateAnswer:
        parameters = {
            **sampling_parameters(request),
            "max_tokens": request.max_tokens,
            "stop": list(request.stop),
            "seed": request.seed,
        }
        output = await self._call(request.prompt, parameters)
        return generate_answer(output.outputs[0], None, self.fingerprint)

    async def _call(self, tokens: TokenIds, parameters: Mapping[str, Any]) -> Any:
        """Return the engine's output for these tokens."""
        try:
            output = await self.engine.generate(list(tokens), self.parameters(**parameters))
        except Exception as error:  # an engine may raise anything; other requests are unaffected
            raise BackendError(f"{self.fingerprint}: {type(error).__name__}: {error}") from error
        if output is None:
            raise BackendError(f"{self.fingerprint}: the engine returned no output")
        return output


class UpdateCounter:
    """Counts the updates of an engine's weights, which the engine itself does not report.

    The trainer sends them through `collective_rpc`, as `update_weight` or
    `update_weight_cuda_ipc`. With partial rollouts it does so while requests are held.
    """

    def __init__(self, llm: Any) -> None:
        self.count = 0
        self._call = llm.collective_rpc
        llm.collective_rpc = self._counted

    async def _counted(self, method: Any, *arguments: Any, **named: Any) -> Any:
        if str(method).startswith("update_weight"):
            self.count += 1
        return await self._call(method, *arguments, **named)
