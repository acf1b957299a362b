"""verl's own rollout engine as a policy: it scores and generates with the weights that it serves.

No model is loaded for it. An agent loop has the engine's client at hand; log-probabilities of a
given text are the engine's prompt log-probabilities, as verl's distillation teacher asks for them.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from rag_rewards.backends.groups import Ask, Scored, answer, asks, refuse
from rag_rewards.backends.http import together
from rag_rewards.backends.selfcheck import selfcheck
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

_SCORING = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
# The engine's defaults may come from the model's generation_config.json: none is meant here.
_SAMPLING = {"top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0}
_ABORTED = ("abort", "aborted")
_PAUSES = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before further tries of a request that a change of weights has aborted."""
_CHANGES = 3
"""How often a group is asked anew when the weights changed while it was scored."""


class EnginePolicy:
    """A Policy on the client of verl's rollout servers (`server_manager` of an agent loop).

    client          LLMServerClient, or whatever has its `generate`
    tokenizer       the trainer's
    rollout_config  `actor_rollout_ref.rollout`: the engine's name, precision and length
    model           what the weights are called, for the fingerprint

    All values of one answer come from the same weights: what a change of weights tears apart is
    asked again, and is a BackendError when it keeps changing.
    """

    def __init__(
        self, client: Any, tokenizer: Tokenizer, rollout_config: Any, model: str = ""
    ) -> None:
        self.client = client
        self.tokenizer = tokenizer
        self.config = rollout_config
        self.model = model
        self._home = weakref.ref(asyncio.get_running_loop())

    @property
    def fingerprint(self) -> str:
        return " ".join(filter(None, ("verl", self._engine, self.model, self._precision)))

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(precision=self._precision)

    @property
    def max_length(self) -> int | None:
        """One less than the engine's: a request for log-probabilities also generates a token."""
        longest = self.config.get("max_model_len")
        return None if longest is None else int(longest) - 1

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        return await together(self._caught(self._score(request)) for request in requests)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        return await together(self._caught(self._generate(request)) for request in requests)

    async def selfcheck(self) -> None:
        """The shared check, on the loop that the client belongs to; again if weights changed."""
        home = self._home()
        if home is None or home is asyncio.get_running_loop():
            await self._check()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._check(), home))

    async def close(self) -> None:
        """The engine is the trainer's, and ends with it."""

    # --- scoring -------------------------------------------------------------------------------

    async def _check(self) -> None:
        for last in (False, False, True):
            before = await self._version()
            try:
                return await selfcheck(self)
            except BackendError:
                if last or await self._version() == before:
                    raise

    async def _version(self) -> Any:
        return _version_of(await self._ask((3, 4, 5), uuid4().hex))

    async def _caught(self, work: Any) -> Any:
        try:
            return await work
        except BackendError as error:
            return error

    async def _score(self, request: ScoreRequest) -> ScoreAnswer:
        """A group, all of its sequences with the same weights."""
        refuse(request, self.max_length, self.fingerprint)
        group = asks(request)
        for _ in range(_CHANGES):
            place = uuid4().hex  # requests of one id stay on one server
            outputs = await together(
                self._ask(ask.tokens, self._request_id(place, i)) for i, ask in enumerate(group)
            )
            versions = {_version_of(output) for output in outputs}
            if len(versions) <= 1:
                return self._answer(request, group, outputs, versions)
        raise BackendError(
            f"{self.fingerprint}: the weights changed between the two terms of a difference "
            f"(global steps {', '.join(sorted(map(str, versions)))}), {_CHANGES} times in a row"
        )

    def _answer(
        self,
        request: ScoreRequest,
        group: Sequence[Ask],
        outputs: Sequence[Any],
        versions: set[Any],
    ) -> ScoreAnswer:
        scored = [
            (ask, Scored(values_of(output.extra_fields, ask, self.fingerprint), len(ask.tokens)))
            for ask, output in zip(group, outputs, strict=True)
        ]
        return answer(
            request,
            scored,
            who=self.fingerprint,
            path=f"verl {self._engine}",
            weight_version=next(iter(versions), None),
        )

    async def _ask(self, tokens: TokenIds, request_id: str) -> Any:
        """The engine's output with the log-probabilities of these tokens."""
        for pause in (*_PAUSES, None):
            output = await self._call(_scorer(self.client), request_id, tokens, _SCORING)
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
                f"{self.fingerprint}: the answer has no prompt_logprobs; verl 0.9 and later give "
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
                sampling_params=dict(parameters),  # the engine takes its entries out
            )
        except Exception as error:  # whatever a remote server raises, for this request alone
            told = str(error).strip().splitlines() or [""]
            raise BackendError(
                f"{self.fingerprint}: {type(error).__name__}: {told[-1]}"
            ) from error.with_traceback(None)

    # --- generation ------------------------------------------------------------------------------

    async def _generate(self, request: GenerateRequest) -> GenerateAnswer:
        parameters: dict[str, Any] = {
            **_SAMPLING,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
        }
        if self._engine == "vllm":  # verl runs sglang without a tokenizer: it knows no text
            parameters["stop"] = list(request.stop)
            if request.seed is not None:
                parameters["seed"] = request.seed
        output = await self._call(self.client.generate, uuid4().hex, request.prompt, parameters)
        if output.stop_reason in _ABORTED:
            raise BackendError(f"{self.fingerprint}: aborted by a change of weights")
        token_ids = tuple(output.token_ids)
        whole = str(self.tokenizer.decode(token_ids))
        text = min((whole.partition(stop)[0] for stop in request.stop), key=len, default=whole)
        ended = text != whole or len(token_ids) < request.max_tokens
        return GenerateAnswer(text, token_ids, "stop" if ended else "length", _version_of(output))

    # --- what the trainer's config says ----------------------------------------------------------

    @property
    def _engine(self) -> str:
        return str(self.config.get("name") or "engine")

    @property
    def _precision(self) -> str:
        return str(self.config.get("dtype") or "unknown")

    def _request_id(self, place: str, i: int) -> str:
        """Under full determinism the engine gets the id itself, which must differ there."""
        return f"{place}-{i}" if self.config.get("full_determinism") else place


def values_of(fields: Mapping[str, Any], ask: Ask, who: str) -> list[float]:
    """The log-probabilities of a response from verl's prompt log-probabilities, in nats.

    Entry i belongs to token i + 1, in rows of one; the last entry is a dummy. BackendError where
    the tokens beside them are not those that were asked about.
    """
    rows, ids = fields["prompt_logprobs"], fields["prompt_ids"]
    asked = list(ask.tokens)
    if len(rows) != len(asked) or [row[0] for row in ids[:-1]] != asked[1:]:
        raise BackendError(
            f"{who}: the log-probabilities of {len(rows)} other tokens came back for {len(asked)}"
        )
    first = len(ask.context) - 1
    return [row[0] for row in rows[first : first + len(ask.response)]]


def _version_of(output: Any) -> Any:
    """The training step of the weights; verl calls it so in every output."""
    return output.extra_fields.get("global_steps")


def _scorer(client: Any) -> Any:
    """The call that keeps prompt log-probabilities: the asynchronous client rebuilds its outputs
    without them, the plain one below it does not."""
    from verl.workers.rollout.llm_server import LLMServerClient

    if not isinstance(client, LLMServerClient):
        return client.generate
    plain: Any = LLMServerClient.generate
    return plain.__get__(client)
