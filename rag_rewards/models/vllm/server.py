"""A policy on vLLM's OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import (
    GenerateAnswer,
    GenerateRequest,
)
from rag_rewards.models.client import Sender
from rag_rewards.models.policy_server import (
    PolicyServer,
    ServedModel,
    Version,
    sampling_parameters,
)
from rag_rewards.models.sequences import SequenceResult, TokenSequence
from rag_rewards.models.text_servers.server import ModelCard, Rows
from rag_rewards.models.vllm.prompt_logprobs import (
    PLAIN,
    generate_answer,
    max_sequence_length,
    response_logprobs,
)

# --- responses of the server ---------------------------------------------------------------------


class _Row(msgspec.Struct):
    logprob: float


_Rows = list[dict[int, _Row] | None] | None


class _Choice(msgspec.Struct):
    index: int = 0
    text: str = ""
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    prompt_logprobs: _Rows = None


class _Completion(msgspec.Struct):
    """The response of /v1/completions."""

    choices: list[_Choice]


# --- the policy ----------------------------------------------------------------------------------


class VllmServer(PolicyServer):
    """A policy on vLLM's OpenAI-compatible server, or on several servers of the same model.

    url             http:// or https:// addresses; all sequences of a group go to one server
    model           name of the served model; default: the first model of the server
    tokenizer       a tokenizer or its folder; default: the folder of the model, if it exists on
                    this machine
    precision       precision of the server ("float32", "bfloat16", …), for the fingerprint and for
                    the tolerances of the self-check; a server does not report it
    weight_version  version of the served weights, for the answers and the fingerprint
    api_key         key for the Authorization header
    limits          timeouts, retries and concurrency of the requests

    The server holds the logits of a whole chunk of tokens in memory that vLLM does not plan for:
    7.5 GiB for 8,192 tokens and a vocabulary of 152,000. Start it with a small
    `--max-num-batched-tokens`.

    Raises UsageError for an address that is not an HTTP address.
    """

    engine = "vllm"
    reuses_prefixes = False
    model_endpoints = ((("/v1/models",), Rows[ModelCard]),)

    def __init__(
        self, url: str | Sequence[str], *, model: str | None = None, **options: Any
    ) -> None:
        super().__init__(url, **options)
        self.model = model

    @property
    def model_name(self) -> str:
        """Name of the served model. Sends a request to a server if it is not known yet."""
        return self.model or super().model_name

    def _described_model(self, *responses: Any) -> ServedModel:
        (cards,) = responses
        for card in cards.data:
            if self.model in (None, card.id):
                return ServedModel(card.id, card.root, max_sequence_length(card.max_model_len))
        names = ", ".join(repr(card.id) for card in cards.data) or "none"
        raise BackendError(f"vllm: the server has no model {self.model!r}; its models are: {names}")

    # --- scoring -------------------------------------------------------------------------------

    async def _score_batch(
        self, sequences: Sequence[TokenSequence], model: ServedModel, sender: Sender
    ) -> list[tuple[SequenceResult, Version]]:
        prompts = [sequence.tokens for sequence in sequences]
        body = {"model": model.name, "prompt": prompts, **PLAIN}
        choices = (await sender.post("/v1/completions", body, _Completion)).choices
        source = self._source(model, sender)
        if sorted(choice.index for choice in choices) != list(range(len(sequences))):
            raise BackendError(f"{source}: expected {len(sequences)} choices, found {len(choices)}")
        rows = {choice.index: choice.prompt_logprobs for choice in choices}
        scored: list[tuple[SequenceResult, Version]] = []
        for i, sequence in enumerate(sequences):
            values = response_logprobs(rows[i], sequence.response, source)
            scored.append((SequenceResult(values, len(sequence.tokens)), None))
        return scored

    # --- generation ------------------------------------------------------------------------------

    async def _generate(
        self, request: GenerateRequest, model: ServedModel, sender: Sender
    ) -> GenerateAnswer:
        version = self.weight_version
        body = {
            "model": model.name,
            "prompt": [request.prompt],
            "max_tokens": request.max_tokens,
            "stop": request.stop,
            "seed": request.seed,
            "return_token_ids": True,
            **sampling_parameters(request),
        }
        choices = (await sender.post("/v1/completions", body, _Completion)).choices
        source = self._source(model, sender)
        if len(choices) != 1:
            raise BackendError(f"{source}: expected 1 choice, found {len(choices)}")
        return generate_answer(choices[0], version, source)
