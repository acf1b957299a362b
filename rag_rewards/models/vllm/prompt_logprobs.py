"""Log-probabilities of a given text from vLLM: its prompt log-probabilities.

The rows of a cached part of a prompt would be uninitialized memory, so a request must not read the
prefix cache. Therefore the values are exact, and the model runs on every token of every sequence.
The fields of a request, read in the released packages:

prompt_logprobs            all rows of a prompt. `/v1/completions` has this field, and vLLM then
                           skips the prefix cache by itself (0.33, `SamplingParams.__post_init__`)
skip_reading_prefix_cache  states this explicitly; from 0.11.1, for engines only
prompt_logprob_start       the first row to score, with `prompt_logprob_token_ids` for each row;
                           from 0.32, for engines with the V2 model runner

The requests of the OpenAI-compatible server (0.33, `CompletionRequest`) do not have the last two:
it ignores other fields and logs a warning for each request. So only engines get them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import GenerateAnswer, TokenIds

PLAIN = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
"""Fields of a request to a server for log-probabilities."""
_ENGINE = {"detokenize": False, "skip_reading_prefix_cache": True}
ENGINE_PLAIN = {**PLAIN, **_ENGINE}
"""Sampling parameters of a request to an engine for log-probabilities."""


def suffix_parameters(context: int, response: TokenIds) -> dict[str, Any]:
    """Return the sampling parameters that score only the response after `context` tokens.

    The engine computes no logits for the context. Its result `prompt_token_id_logprobs` has the
    shape (tokens of the response, 1).
    """
    return {
        **_ENGINE,
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprob_start": context - 1,
        "prompt_logprob_token_ids": [[token] for token in response],
    }


def max_sequence_length(context_length: int | None) -> int | None:
    """Return the maximum length of a sequence: one less than the context length of the model.

    A request for log-probabilities also generates one token.
    """
    return None if context_length is None else context_length - 1


def response_logprobs(
    rows: Sequence[Mapping[int, Any] | None] | None, response: TokenIds, source: str
) -> list[float]:
    """Return the log-probabilities of a response, in nats, from the rows of its prompt.

    The response is the end of the prompt, whose first row is null. Raises BackendError if a row
    does not contain its token, as in shifted rows; `source` names the backend in the message.
    """
    if not rows:
        raise BackendError(
            f"{source}: no log-probabilities of the prompt, expected {len(response)}; usually a "
            "server that does not know prompt_logprobs"
        )
    last = rows[-len(response) :]
    if len(last) < len(response):
        raise BackendError(f"{source}: expected {len(response)} rows, found {len(last)}")
    values = []
    for position, (token, row) in enumerate(zip(response, last, strict=True)):
        if row is None or token not in row:
            content = "none" if row is None else f"tokens {sorted(row)}"
            raise BackendError(
                f"{source}: expected a row with token {token} at {position} of the response, "
                f"found {content}; usually values that are shifted, or belong to another prompt"
            )
        values.append(float(row[token].logprob))
    return values


def suffix_logprobs(values: Any, response: TokenIds, source: str) -> list[float]:
    """Return the log-probabilities of a response from the result of `suffix_parameters`.

    Raises BackendError for a result of another shape; `source` names the backend in the message.
    """
    rows = [] if values is None else [list(row) for row in values]
    if [len(row) for row in rows] != [1] * len(response):
        raise BackendError(
            f"{source}: expected {len(response)} rows of one log-probability, found "
            f"{[len(row) for row in rows] or 'none'}"
        )
    return [float(value) for (value,) in rows]


def generate_answer(choice: Any, version: str | int | None, source: str) -> GenerateAnswer:
    """Return the answer from a choice of the server or an output of the engine.

    Raises BackendError if generation was aborted, or without token ids.
    """
    if choice.finish_reason not in ("stop", "length"):
        raise BackendError(f"{source}: generation ended with {choice.finish_reason!r}")
    if choice.token_ids is None:
        raise BackendError(
            f"{source}: no token ids of the generated text; vLLM 0.10.2 or later is required"
        )
    return GenerateAnswer(choice.text, tuple(choice.token_ids), choice.finish_reason, version)
