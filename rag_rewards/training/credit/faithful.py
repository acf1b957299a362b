"""FaithRL: advantages of tokens that depend on whether a step of the reasoning is supported."""

from __future__ import annotations

from collections.abc import Sequence

from rag_rewards.errors import UsageError
from rag_rewards.training.credit.entries import sample_std, standardized


def faithful_advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """Return (R − mean)/(s + 1e-6) of a group, with the sample standard deviation s.

    >>> [round(a, 6) for a in faithful_advantages([0.3, -0.4, 0.0, 0.3])]
    [0.753776, -1.356797, -0.150755, 0.753776]
    """
    mean, deviation = sample_std([reward for reward in rewards if reward is not None])
    return [
        None if reward is None else standardized(reward, mean, deviation, 1e-6)
        for reward in rewards
    ]


def faithful_modulation(
    advantage: float, supported: Sequence[bool], answer: Sequence[bool], alpha: float = 0.75
) -> list[float]:
    """Return the advantage of each token of a response with the advantage A.

    supported  whether each token is part of a supported step of the reasoning, or of a tag
    answer     whether each token is part of the answer, which keeps A

    For A > 0, other tokens than the supported ones get α·A. For A ≤ 0, the supported ones do. A
    repeated step, and a step of an abstention on an answerable question, are not supported.
    Source: FaithRL, aintdoin/FaithRL@e0f257a verl/trainer/ppo/core_algos.py; α = 0.75 in main.sh.

    >>> faithful_modulation(1.0, [True, False, False], [False, False, True])
    [1.0, 0.75, 1.0]
    """
    if len(supported) != len(answer):
        raise UsageError(
            f"{len(supported)} tokens in supported, but {len(answer)} in answer: give one value "
            "per token"
        )
    kept = advantage > 0
    return [
        advantage if in_answer or bool(is_supported) is kept else alpha * advantage
        for is_supported, in_answer in zip(supported, answer, strict=True)
    ]
