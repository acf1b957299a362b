"""Sampling parameters that vLLM and SGLang have in common."""

from __future__ import annotations

from rag_rewards.evidence.protocols import GenerateRequest

NEUTRAL_SAMPLING = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Parameters that leave the distribution of the model unchanged.

They are sent explicitly, because the defaults of a server may come from the model's
generation_config.json.
"""


def sampling_parameters(request: GenerateRequest) -> dict[str, float]:
    """Return the parameters of a request, with all other parameters neutral.

    >>> sampling_parameters(GenerateRequest((1,), temperature=0.6, top_p=0.9))["top_p"]
    0.9
    """
    return {**NEUTRAL_SAMPLING, "temperature": request.temperature, "top_p": request.top_p}
