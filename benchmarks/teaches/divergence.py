"""The divergence of a policy from its base model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiment import Figures

QUESTIONS = 200
"""Number of questions whose responses are measured."""


def divergence(
    form: Any, model: Any, tokenizer: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    """Return KL(policy, base) per token, in nats, over the whole vocabulary.

    The tokens are responses of the policy to the first questions.
    """
    import torch

    from rag_rewards.tiny_world.generation import rollouts
    from rag_rewards.tiny_world.model import load

    before, _ = load(start)
    responses = rollouts(model, tokenizer, form, fresh[:QUESTIONS], temperature=temperature)
    total, count = 0.0, 0
    for each in responses:
        prompt = tokenizer.encode(each.prompt)
        response = tokenizer.encode(each.response, add_special_tokens=False)
        ids = [*prompt, *response, tokenizer.eos_token_id]
        with torch.no_grad():
            now, then = (
                torch.log_softmax(net(torch.tensor([ids])).logits[0, len(prompt) - 1 : -1], -1)
                for net in (model.eval(), before.eval())
            )
        total += float((now.exp() * (now - then)).sum())
        count += len(now)
    return {"KL to base": total / count}
