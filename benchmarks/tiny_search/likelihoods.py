"""Log-probabilities of gold answers by the policy in training, for the recipe `igpo`.

The contexts of this world have at most 60 tokens. Then one padded batch of all groups takes less
time than the shared prefixes of `TransformersPolicy`, which computes fewer tokens in more calls.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from rag_rewards.evidence.protocols import ScoreAnswer, ScoreRequest
from rag_rewards.models.transformers import TransformersPolicy

ROWS = 128
"""Sequences of a batch. The sequences are sorted by length, so that little padding is computed."""


class BatchPolicy(TransformersPolicy):
    """A policy that scores all requests together.

    Its values are those of TransformersPolicy within the precision of the numbers.
    """

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreAnswer | Exception]:
        wanted = [
            (number, pair) for number, request in enumerate(requests) for pair in request.wanted()
        ]
        sequences = [
            (requests[number].contexts[context], requests[number].responses[response])
            for number, (context, response) in wanted
        ]
        order = sorted(range(len(sequences)), key=lambda i: sum(map(len, sequences[i])))
        values: list[dict[tuple[int, int], array[float]]] = [{} for _ in requests]
        with self._lock, self._forward.inference():
            for start in range(0, len(order), ROWS):
                rows = order[start : start + ROWS]
                found = _logprobs(self.model, [sequences[i] for i in rows])
                for i, logprobs in zip(rows, found, strict=True):
                    number, pair = wanted[i]
                    values[number][pair] = logprobs
        return [ScoreAnswer(each, "batch", weight_version=self.weight_version) for each in values]


def _logprobs(
    model: Any, sequences: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[array[float]]:
    """Return the log-probabilities of the second part of each sequence.

    The padding is on the right side, where a causal model does not see it.
    """
    import torch

    width = max(len(context) + len(response) for context, response in sequences)
    ids = torch.zeros((len(sequences), width), dtype=torch.long)
    for row, (context, response) in enumerate(sequences):
        ids[row, : len(context) + len(response)] = torch.tensor([*context, *response])
    logits = model(input_ids=ids[:, :-1]).logits
    logprobs = torch.log_softmax(logits.float(), -1).gather(2, ids[:, 1:, None])[..., 0]
    return [
        array("f", logprobs[row, len(c) - 1 : len(c) - 1 + len(r)].tolist())
        for row, (c, r) in enumerate(sequences)
    ]
