"""Log-probabilities of a given text from vLLM: its prompt log-probabilities.

When vLLM computes prompt log-probabilities, it does not read its prefix cache by default, because
the rows of the cached part of a prompt would be uninitialized memory. Therefore the values are
exact, and the model runs on every token of every sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rag_rewards.errors import BackendError
from rag_rewards.evidence.protocols import GenerateAnswer, TokenIds

PLAIN = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
"""Sampling parameters of a request for log-probabilities."""


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
