"""A policy on SGLang's native `/generate` endpoint.

When log-probabilities are requested from the last token of the context on, SGLang does not use its
radix cache for the tokens after that position. The reuse of prefixes is therefore exact. A context
is first sent with one response, and with the other responses when its tokens are in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import GenerateAnswer, GenerateRequest
from rag_rewards.models.client import Sender
from rag_rewards.models.policy_server import (
    PolicyServer,
    ServedModel,
    Version,
    sampling_parameters,
)
from rag_rewards.models.sequences import SequenceResult, TokenSequence

# --- responses of the server ---------------------------------------------------------------------


class _FinishReason(msgspec.Struct):
    type: str = ""
    message: str = ""


class _MetaInfo(msgspec.Struct):
    """`input_token_logprobs` are [log-probability or null, token id, text or null]."""

    finish_reason: _FinishReason | None = None
    cached_tokens: int = 0
    weight_version: str | int | None = None
    input_token_logprobs: list[tuple[float | None, int, str | None]] | None = None


class _Generation(msgspec.Struct):
    meta_info: _MetaInfo
    text: str = ""
    output_ids: list[int] | None = None


class _ModelInfo(msgspec.Struct):
    model_path: str
    tokenizer_path: str | None = None


class _ServerInfo(msgspec.Struct):
    max_req_input_len: int | None = None
    context_length: int | None = None


# --- the policy ----------------------------------------------------------------------------------


class SglangServer(PolicyServer):
    """A policy on an SGLang server, or on several servers of the same model.

    url             http:// or https:// addresses; all sequences of a group go to one server
    tokenizer       a tokenizer or its folder; default: the folder that the server reports, if it
                    exists on this machine
    precision       precision of the server ("float32", "bfloat16", …), for the fingerprint and for
                    the tolerances of the self-check
    weight_version  version of the served weights; default: the version that the server reports
                    with each answer
    api_key         key for the Authorization header
    limits          timeouts, retries and concurrency of the requests

    Raises UsageError for an address that is not an HTTP address.
    """

    engine = "sglang"
    reuses_prefixes = True
    model_endpoints = (
        # The second path of each pair is the one of servers before version 0.5.
        (("/model_info", "/get_model_info"), _ModelInfo),
        (("/server_info", "/get_server_info"), _ServerInfo),
    )

    def _described_model(self, *responses: Any) -> ServedModel:
        model, server = responses
        # A scored response is part of the input, and the scheduler truncates inputs that reach
        # this limit.
        longest = server.max_req_input_len or server.context_length
        return ServedModel(
            model.model_path,
            model.tokenizer_path or model.model_path,
            None if longest is None else longest - 1,
        )

    # --- scoring -------------------------------------------------------------------------------

    async def _score_batch(
        self, sequences: Sequence[TokenSequence], model: ServedModel, sender: Sender
    ) -> list[tuple[SequenceResult, Version]]:
        source = self._source(model, sender)
        body = {
            "input_ids": [sequence.tokens for sequence in sequences],
            "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": [len(sequence.context) - 1 for sequence in sequences],
        }
        generations = await sender.post("/generate", body, list[_Generation])
        if len(generations) != len(sequences):
            raise BackendError(
                f"{source}: expected {len(sequences)} answers, found {len(generations)}"
            )
        scored: list[tuple[SequenceResult, Version]] = []
        for sequence, info in zip(sequences, (each.meta_info for each in generations), strict=True):
            computed = len(sequence.tokens) - info.cached_tokens
            values = response_logprobs(info, sequence, source)
            scored.append((SequenceResult(values, computed), info.weight_version))
        return scored

    # --- generation ------------------------------------------------------------------------------

    async def _generate(
        self, request: GenerateRequest, model: ServedModel, sender: Sender
    ) -> GenerateAnswer:
        version = self.weight_version
        parameters = {
            "max_new_tokens": request.max_tokens,
            "stop": request.stop,
            **sampling_parameters(request),
        }
        if request.seed is not None:
            parameters["sampling_seed"] = request.seed
        body = {"input_ids": request.prompt, "sampling_params": parameters}
        generation = await sender.post("/generate", body, _Generation)
        reason = generation.meta_info.finish_reason or _FinishReason()
        source = self._source(model, sender)
        if reason.type not in ("stop", "length"):
            raise BackendError(f"{source}: generation ended with {reason.type!r} {reason.message}")
        if generation.output_ids is None:
            raise BackendError(f"{source}: no token ids of the generated text")
        if version is None:
            version = generation.meta_info.weight_version
        return GenerateAnswer(generation.text, tuple(generation.output_ids), reason.type, version)


def response_logprobs(info: _MetaInfo, sequence: TokenSequence, source: str) -> list[float]:
    """Return the log-probabilities of a response, in nats: all values except the leading null.

    Raises BackendError for an aborted request and for values in other positions; `source` names
    the backend in the message.
    """
    reason = info.finish_reason or _FinishReason()
    if reason.type == "abort":
        raise BackendError(f"{source}: the request was aborted: {reason.message}")
    rows = info.input_token_logprobs
    if not rows:
        raise BackendError(
            f"{source}: no log-probabilities of the input, expected {len(sequence.response)}; "
            "usually a server that does not know return_logprob"
        )
    values = [value for value, *_ in rows]
    if values[0] is not None:
        raise BackendError(
            f"{source}: expected null for the last token of the context, found {values[0]}; "
            "usually a server that begins with the next token, or does not know logprob_start_len"
        )
    if len(values) != len(sequence.response) + 1:
        raise BackendError(
            f"{source}: expected {len(sequence.response)} log-probabilities after the null, found "
            f"{len(values) - 1}"
        )
    if None in values[1:]:
        raise BackendError(f"{source}: a null within the log-probabilities of the input")
    return [value for value in values if value is not None]
