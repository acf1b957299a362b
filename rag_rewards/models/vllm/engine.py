"""A policy on a vLLM engine in this process."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rag_rewards.errors import BackendError, MissingExtraError
from rag_rewards.evidence.protocols import (
    Capabilities,
    GenerateAnswer,
    GenerateRequest,
    ScoreAnswer,
    ScoreRequest,
    TokenIds,
    Tokenizer,
)
from rag_rewards.models.local_models import resolve_tokenizer
from rag_rewards.models.policy_server import sampling_parameters, weights_changed
from rag_rewards.models.selfcheck import selfcheck
from rag_rewards.models.sequences import (
    SequenceResult,
    TokenSequence,
    check_request,
    distinct_sequences,
    score_answer,
)
from rag_rewards.models.vllm.prompt_logprobs import (
    ENGINE_PLAIN,
    generate_answer,
    max_sequence_length,
    response_logprobs,
    suffix_logprobs,
    suffix_parameters,
)

A = TypeVar("A")
R = TypeVar("R")
log = logging.getLogger("rag_rewards")

_GROUPS = 64
"""Number of groups that the engine receives at once."""


class VllmEngine:
    """A policy on a `vllm.LLM` in this process.

    llm             a `vllm.LLM`, or the name or folder of a model to load
    tokenizer       a tokenizer or its folder; default: the tokenizer of the engine
    weight_version  version of the weights, for the answers and the fingerprint
    options         arguments of `vllm.LLM`, if `llm` is a name or a folder

    Calls from several threads or event loops run one after the other. With the V2 model runner of
    vLLM, only the logits of responses are computed, unless the self-check fails with them. Else the
    engine holds the logits of a whole chunk of tokens in memory that vLLM does not plan for: use a
    small `max_num_batched_tokens`. Raises MissingExtraError if vLLM is not installed.
    """

    def __init__(
        self,
        llm: Any,
        *,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        weight_version: str | int | None = None,
        **options: Any,
    ) -> None:
        vllm = _import_vllm()
        if isinstance(llm, str | os.PathLike):
            llm = vllm.LLM(model=os.fspath(llm), **options)
        self.llm = llm
        self.weight_version = weight_version
        self._sampling_params = vllm.SamplingParams
        self._config = llm.llm_engine.model_config
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._scores_suffixes = _has_suffixes(llm.llm_engine)

    # --- identity ------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Engine, model, precision and, if it is known, the version of the weights."""
        version = "" if self.weight_version is None else f" version={self.weight_version}"
        return f"vllm {self._config.model} {self.capabilities.precision}{version}"

    @property
    def capabilities(self) -> Capabilities:
        """The precision of the model. Weights with a version are those that generate rollouts."""
        precision = str(self._config.dtype).removeprefix("torch.")
        is_live = self.weight_version is not None
        return Capabilities(precision=precision, is_live=is_live)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises UsageError if its folder contains none."""
        tokenizer = self.llm.get_tokenizer() if self._tokenizer is None else self._tokenizer
        self._tokenizer = resolve_tokenizer(tokenizer, None)
        return self._tokenizer

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens of context and response."""
        return max_sequence_length(int(self._config.max_model_len))

    def refresh(self, weight_version: str | int | None = None) -> None:
        """Declare that the engine has new weights. Its prefix cache must have been reset."""
        self.weight_version = weight_version

    # --- the protocol --------------------------------------------------------------------------

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Return the log-probabilities of each request, or its BackendError."""
        answers: list[ScoreAnswer | Exception] = []
        for start in range(0, len(requests), _GROUPS):
            part = requests[start : start + _GROUPS]
            answers += await asyncio.to_thread(_answer_each, self._score, part)
        return answers

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> list[GenerateAnswer | Exception]:
        """Return one continuation for each request, or its BackendError."""
        if not requests:
            return []
        return await asyncio.to_thread(_answer_each, self._generate, requests)

    async def selfcheck(self) -> None:
        """Run the self-check of all policies. Raises BackendError."""
        try:
            return await selfcheck(self)
        except BackendError as error:
            if not self._scores_suffixes:
                raise
            log.warning("vllm: prompt_logprob_start is not used, because: %s", error)
        self._scores_suffixes = False
        await selfcheck(self)

    async def close(self) -> None:
        """Do nothing: the engine belongs to its owner."""

    # --- scoring -------------------------------------------------------------------------------

    def _score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        """Score requests together."""
        version = self.weight_version
        groups: list[list[TokenSequence] | BackendError] = []
        for request in requests:
            try:
                check_request(request, self.max_length, self.fingerprint)
                groups.append(distinct_sequences(request))
            except BackendError as error:
                groups.append(error)
        outputs = iter(
            self._run([one for group in groups if isinstance(group, list) for one in group])
        )
        return [
            self._answer(request, [(one, next(outputs)) for one in group], version)
            if isinstance(group, list)
            else group
            for request, group in zip(requests, groups, strict=True)
        ]

    def _answer(
        self,
        request: ScoreRequest,
        outputs: Sequence[tuple[TokenSequence, Any]],
        version: str | int | None,
    ) -> ScoreAnswer | Exception:
        source = self.fingerprint
        if self.weight_version != version:
            return weights_changed(source)
        try:
            scored = [
                (one, SequenceResult(self._values(output, one.response), len(one.tokens)))
                for one, output in outputs
            ]
            return score_answer(request, scored, source=source, path="vllm", weight_version=version)
        except BackendError as error:
            return error

    def _run(self, sequences: Sequence[TokenSequence]) -> list[Any]:
        """Return the outputs of the engine for sequences, in order."""
        if not sequences:
            return []
        prompts = [{"prompt_token_ids": list(sequence.tokens)} for sequence in sequences]
        if not self._scores_suffixes:
            return self._call(prompts, self._sampling_params(**ENGINE_PLAIN))
        each = (suffix_parameters(len(one.context), one.response) for one in sequences)
        return self._call(prompts, [self._sampling_params(**parameters) for parameters in each])

    def _values(self, output: Any, response: TokenIds) -> list[float]:
        """Return the log-probabilities of a response from an output of the engine."""
        if self._scores_suffixes:
            return suffix_logprobs(output.prompt_token_id_logprobs, response, self.fingerprint)
        return response_logprobs(output.prompt_logprobs, response, self.fingerprint)

    def _call(self, prompts: list[dict[str, list[int]]], parameters: Any) -> list[Any]:
        with self._lock:
            try:
                outputs = self.llm.generate(prompts, parameters, use_tqdm=False)
            except Exception as error:  # an engine can raise any exception
                raise BackendError(
                    f"{self.fingerprint}: {type(error).__name__}: {error}"
                ) from error
        if len(outputs) != len(prompts):
            raise BackendError(
                f"{self.fingerprint}: expected {len(prompts)} outputs, found {len(outputs)}"
            )
        return list(outputs)

    # --- generation ----------------------------------------------------------------------------

    def _generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateAnswer | Exception]:
        """Generate for requests together."""
        version = self.weight_version
        prompts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
        parameters = [
            self._sampling_params(
                max_tokens=request.max_tokens,
                stop=list(request.stop),
                seed=request.seed,
                **sampling_parameters(request),
            )
            for request in requests
        ]
        answers: list[GenerateAnswer | Exception] = []
        for output in self._call(prompts, parameters):
            try:
                answers.append(generate_answer(output.outputs[0], version, self.fingerprint))
            except BackendError as error:
                answers.append(error)
        return answers


def _answer_each(
    answer: Callable[[Sequence[R]], list[A | Exception]], requests: Sequence[R]
) -> list[A | Exception]:
    """Answer requests together, and separately if the engine rejects them together."""
    try:
        return answer(requests)
    except BackendError as error:
        if len(requests) == 1:
            return [error]
        return [_answer_each(answer, [request])[0] for request in requests]


def _has_suffixes(engine: Any) -> bool:
    """Return whether an engine accepts `prompt_logprob_start` (vLLM 0.33, `InputProcessor`)."""
    config: Any = getattr(engine, "vllm_config", None)
    if not getattr(config, "use_v2_model_runner", False):
        return False
    return not config.cache_config.kv_sharing_fast_prefill


def _import_vllm() -> Any:
    try:
        return importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise
        raise MissingExtraError("vllm", extra="vllm") from None
