"""Generate responses to questions of the tiny world, and turn them into rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_row
from rag_rewards.tiny_world.formats import ResponseFormat
from rag_rewards.tiny_world.world import WorldQuestion

MAX_TOKENS = 20
"""Tokens of a response; the longest format has 19."""


def responses(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    temperature: float = 0.0,
    samples: int = 1,
    seed: int = 0,
    batch_size: int = 512,
) -> Iterator[str]:
    """Generate `samples` responses to each prompt, in the order of the prompts.

    Decoding is greedy at temperature 0.
    """
    import torch

    torch.manual_seed(seed)
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    decoding = sampling if temperature else {"do_sample": False}
    all_prompts = [prompt for prompt in prompts for _ in range(samples)]
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for start in range(0, len(all_prompts), batch_size):
            batch = all_prompts[start : start + batch_size]
            inputs = tokenizer(batch, padding=True, return_tensors="pt")
            ids = model.generate(**inputs, **decoding, max_new_tokens=MAX_TOKENS)
            generated = ids[:, inputs["input_ids"].shape[1] :]
            yield from tokenizer.batch_decode(generated, skip_special_tokens=True)
    model.train(was_training)


def rollouts(
    model: Any,
    tokenizer: Any,
    form: ResponseFormat,
    questions: Sequence[WorldQuestion],
    **options: Any,
) -> list[Rollout]:
    """Return the model's responses to questions as rollouts.

    The samples of one question are a group. `options` are those of `responses`.
    """
    rows = [form.row(each) for each in questions]
    texts = list(responses(model, tokenizer, [row["prompt"] for row in rows], **options))
    samples = len(texts) // len(questions)
    return [
        decode_row({**rows[i // samples], "response": text, "group": str(i // samples)})
        for i, text in enumerate(texts)
    ]
