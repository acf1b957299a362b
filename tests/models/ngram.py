"""A small language model: normalized, causal, and different after each prefix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import Capabilities, ScoreAnswer, ScoreRequest

VOCABULARY = 48
_LARGE = (1 << 61) - 1


@lru_cache(maxsize=100_000)
def _distribution(state: int) -> tuple[float, ...]:
    weights = [1 + ((state ^ (v * 0x9E3779B1)) * 2654435761 >> 7) % 97 for v in range(VOCABULARY)]
    total = sum(weights)
    return tuple(math.log(weight / total) for weight in weights)


def logprobs(tokens: Sequence[int], seed: int = 1) -> list[float | None]:
    """Return log P(token | all tokens before it) for each token, None for the first."""
    values: list[float | None] = []
    state = seed
    for i, token in enumerate(tokens):
        values.append(_distribution(state)[token] if i else None)
        state = (state * 1_000_003 + token + 1) % _LARGE
    return values


def scored(context: Sequence[int], response: Sequence[int], seed: int = 1) -> list[float]:
    """Return the log-probabilities of a response after a context."""
    return logprobs((*context, *response), seed)[len(context) :]  # type: ignore[return-value]


def greedy(prompt: Sequence[int], count: int) -> list[int]:
    """Return the most probable continuation."""
    tokens = list(prompt)
    for _ in range(count):
        state = 1
        for token in tokens:
            state = (state * 1_000_003 + token + 1) % _LARGE
        tokens.append(max(range(VOCABULARY), key=_distribution(state).__getitem__))
    return tokens[len(prompt) :]


def text_of(tokens: Sequence[int]) -> str:
    return "".join(chr(65 + token) for token in tokens)


Scorer = Callable[["MemoryPolicy", ScoreRequest, tuple[int, int]], Sequence[float]]


def correct_logprobs(
    policy: MemoryPolicy, request: ScoreRequest, pair: tuple[int, int]
) -> list[float]:
    return scored(request.contexts[pair[0]], request.responses[pair[1]])


class MemoryPolicy:
    """A policy with the values of a function, without array conversion or checks."""

    fingerprint = "memory"

    def __init__(self, scorer: Scorer = correct_logprobs, precision: str = "float32") -> None:
        self.scorer = scorer
        self.capabilities = Capabilities(precision=precision)
        self.max_length: int | None = None
        self.calls = 0
        self.sequences: list[tuple[int, ...]] = []
        self.values_of: dict[tuple[int, ...], list[float]] = {}

    @property
    def tokenizer(self):
        raise UsageError("no tokenizer")

    async def score(self, requests):
        self.calls += 1
        return [
            ScoreAnswer({pair: self.scorer(self, one, pair) for pair in one.wanted()}, "memory")
            for one in requests
        ]

    async def generate(self, requests):
        raise NotImplementedError

    async def selfcheck(self):
        raise NotImplementedError

    async def close(self):
        pass
