"""verl's own rollout engine as a policy.

An agent loop has the client of the engine. The log-probabilities of a given text are the engine's
prompt log-probabilities, which verl's distillation teacher also uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import GenerateAnswer, GenerateRequest, TokenIds, Tokenizer
from rag_rewards.models.calls import run_concurrently
from rag_rewards.models.sequences import SequenceResult, TokenSequence
from rag_rewards_adapters.engine_policy import EnginePolicy, WeightsChangedError

_SCORING = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
_VLLM = {"skip_reading_prefix_cache": True}
# The defaults of the engine may come from the model's generation_config.json, so set them all.
_SAMPLING = {"top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0}
_ABORTED = ("abort", "aborted")
_PAUSES = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each further try of a request that a change of weights aborted."""


class VerlEnginePolicy(EnginePolicy):
    """A Policy on the client of verl's rollout servers (`server_manager` of an agent loop).

    client          LLMServerClient, or an object with the same `generate`
    tokenizer       the tokenizer of the trainer
    rollout_config  `actor_rollout_ref.rollout`: the engine's name, precision and length
    model           name of the model, for the fingerprint
    """

    def __init__(
        self, client: Any, tokenizer: Tokenizer, rollout_config: Any, model: str = ""
    ) -> None:
        super().__init__(tokenizer)
        self.client = client
        self.config = rollout_config
        self.model = model
        self.path = f"verl {self._engine}"

    @property
    def fingerprint(self) -> str:
        return " ".join(filter(None, ("verl", self._engine, self.model, self.precision)))

    @property
    def precision(self) -> str:
        return str(self.config.get("dtype") or "unknown")

    @property
    def context_length(self) -> int | None:
        length = self.config.get("max_model_len")
        return None if length is None else int(length)

    @property
    def _engine(self) -> str:
        return str(self.config.get("name") or "engine")

    # --- scoring -------------------------------------------------------------------------------

    async def _current_weights(self) -> Any:
        return _training_step(await self._prompt_logprobs((3, 4, 5), uuid4().hex))

    async def _score_once(self, group: Sequence[TokenSequence]) -> tuple[list[SequenceResult], Any]:
        session = uuid4().hex  # requests with the same id go to the same server
        outputs = await run_concurrently(
            self._prompt_logprobs(ask.tokens, self._request_id(session, i))
            for i, ask in enumerate(group)
        )
        steps = {_training_step(output) for output in outputs}
        if len(steps) > 1:
            raise WeightsChangedError(f"global steps {', '.join(sorted(map(str, steps)))}")
        scored = [
            SequenceResult(
                response_logprobs(output.extra_fields, ask, self.fingerprint), len(ask.tokens)
            )
            for ask, output in zip(group, outputs, strict=True)
        ]
        return scored, next(iter(steps), None)

    def _request_id(self, session: str, i: int) -> str:
        """With full determinism verl passes the id on to the engine, where it must be unique."""
        return f"{session}-{i}" if self.config.get("full_determinism") else session

    async def _prompt_logprobs(self, tokens: TokenIds, request_id: str) -> Any:
        """Return the engine's output with the log-probabilities of these tokens."""
        parameters = _SCORING | (_VLLM if self._engine == "vllm" else {})
        for pause in (*_PAUSES, None):
            output = await self._call(_scoring_call(self.client), request_id, tokens, parameters)
            if output.stop_reason not in _ABORTED:
                break
            if pause is None:
                raise BackendError(
                    f"{self.fingerprint}: aborted {len(_PAUSES) + 1} times in a row, by changes "
                    "of weights"
                )
            await asyncio.sleep(pause)
        if "prompt_logprobs" not in output.extra_fields:
            raise BackendError(
                f"{self.fingerprint}: the answer has no prompt_logprobs; verl 0.9 and later return "
                "them for vllm and sglang"
            )
        return output

    async def _call(
        self, generate: Any, request_id: str, tokens: TokenIds, parameters: Mapping[str, Any]
    ) -> Any:
        try:
            return await generate(
                request_id=request_id,
                prompt_ids=list(tokens),
                sampling_params=dict(parameters),  # the engine removes entries from it
            )
        except Exception as error:  # a server may raise anything; other requests are unaffected
            lines = str(error).strip().splitlines() or [""]
            raise BackendError(
                f"{self.fingerprint}: {type(error).__name__}: {lines[-1]}"
            ) from error.with_traceback(None)

    # --- generation ----------------------------------------------------------------------------

    async def _generate(self, request: GenerateRequest) -> GenerateAnswer:
        parameters: dict[str, Any] = {
            **_SAMPLING,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
        }
        if self._engine == "vllm":  # verl runs sglang without a tokenizer, so it has no stop texts
            parameters["stop"] = list(request.stop)
            if request.seed is not None:
                parameters["seed"] = request.seed
        output = await self._call(self.client.generate, uuid4().hex, request.prompt, parameters)
        if output.stop_reason in _ABORTED:
            raise BackendError(f"{self.fingerprint}: aborted by a change of weights")
        token_ids = tuple(output.token_ids)
        whole = str(self.tokenizer.decode(token_ids))
        text = min((whole.partition(stop)[0] for stop in request.stop), key=len, default=whole)
        stopped = text != whole or len(token_ids) < request.max_tokens
        reason = "stop" if stopped else "length"
        return GenerateAnswer(text, token_ids, reason, _training_step(output))


def response_logprobs(fields: Mapping[str, Any], ask: TokenSequence, engine: str) -> list[float]:
    """Return the log-probabilities of a response, in nats, from verl's prompt log-probabilities.

    Entry i belongs to token i + 1, in rows of one; the last entry is a dummy. Raises BackendError
    when the token ids in the answer differ from those of the request.
    """
    rows, ids = fields["prompt_logprobs"], fields["prompt_ids"]
    tokens = list(ask.tokens)
    if len(rows) != len(tokens) or [row[0] for row in ids[:-1]] != tokens[1:]:
        raise BackendError(
            f"{engine}: the answer has the log-probabilities of {len(rows)} other tokens, the "
            f"request has {len(tokens)} tokens"
        )
    first = len(ask.context) - 1
    return [row[0] for row in rows[first : first + len(ask.response)]]


def _training_step(output: Any) -> Any:
    """Return the training step of the weights, which verl adds to every output."""
    return output.extra_fields.get("global_steps")


def _scoring_call(client: Any) -> Any:
    """Return the method that keeps prompt log-probabilities.

    The asynchronous client builds new outputs without them; its base class keeps them.
    """
    from verl.workers.rollout.llm_server import LLMServerClient

    if not isinstance(client, LLMServerClient):
        return client.generate
    plain: Any = LLMServerClient.generate
    return plain.__get__(client)
