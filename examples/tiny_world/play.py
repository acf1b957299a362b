"""Let a model answer questions of the world: responses as rollouts, ready to be scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import rag_rewards as rr
from rag_rewards.models import Models
from rag_rewards.testing import TableEntailment
from tiny_world.formats import Format
from tiny_world.world import Question

LONGEST = 20
"""Tokens of a response; the longest format has 19."""


def answers(
    model: Any,
    words: Any,
    prompts: Sequence[str],
    *,
    temperature: float = 0.0,
    samples: int = 1,
    seed: int = 0,
    together: int = 512,
) -> Iterator[str]:
    """Responses to the prompts in their order, `samples` of each; greedy at temperature 0."""
    import torch

    torch.manual_seed(seed)
    sampled = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    how = sampled if temperature else {"do_sample": False}
    repeated = [text for text in prompts for _ in range(samples)]
    training = model.training
    model.eval()
    with torch.no_grad():
        for start in range(0, len(repeated), together):
            given = words(repeated[start : start + together], padding=True, return_tensors="pt")
            made = model.generate(**given, **how, max_new_tokens=LONGEST)
            said = made[:, given["input_ids"].shape[1] :]
            yield from words.batch_decode(said, skip_special_tokens=True)
    model.train(training)


def rollouts(
    model: Any, words: Any, form: Format, asked: Sequence[Question], **how: Any
) -> list[rr.Rollout]:
    """What the model says to these questions; samples of one question are a group."""
    rows = [form.row(each) for each in asked]
    said = list(answers(model, words, [row["prompt"] for row in rows], **how))
    samples = len(said) // len(asked)
    return [
        rr.decode_row({**rows[i // samples], "response": text, "group": str(i // samples)})
        for i, text in enumerate(said)
    ]


def entails(premise: str, hypothesis: str) -> float:
    """1 where every word of the hypothesis stands in the premise: all that entailment means here.

    >>> entails("Ada rose", "rose"), entails("Ada rose", "lily")
    (1.0, 0.0)
    """
    return float(set(hypothesis.strip(" .").split()) <= set(premise.split()))


def world_models() -> Models:
    """The models that rewards may ask, apart from a policy."""
    return Models(entailment=TableEntailment(entails, fingerprint="tiny-world"))
