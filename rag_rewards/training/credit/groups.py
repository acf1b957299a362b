"""Credit for the scores of a batch, group by group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.groups import Groups
from rag_rewards.rollout import ScoreOrError, TurnEntries
from rag_rewards.settings import did_you_mean
from rag_rewards.training.credit.entries import Advantages, Rewards
from rag_rewards.training.credit.gigpo import gigpo
from rag_rewards.training.credit.mt_grpo import mt_grpo
from rag_rewards.training.credit.pools import gdpo, igpo
from rag_rewards.training.credit.returns import return_to_go


@wraps(gigpo)
def _gigpo(rewards: Rewards, **options: Any) -> Advantages:
    return gigpo(rewards, **options).advantages


@wraps(gdpo)
def _gdpo(rewards: Rewards, **options: Any) -> Advantages:
    members = [None if entries is None else {"reward": entries} for entries in rewards]
    return gdpo(members, **options)


METHODS: dict[str, Callable[..., Advantages]] = {
    "igpo": igpo,
    "mt_grpo": mt_grpo,
    "gigpo": _gigpo,
    "return": return_to_go,
    "gdpo": _gdpo,
}
"""The methods that need only the rewards of turns. `gigpo` also needs the option `anchors`."""


def credit_of_groups(
    scores: Sequence[ScoreOrError | None], groups: Groups, method: str, **options: Any
) -> Advantages:
    """Return the advantages of the turns of each score, or None for an unscored rollout.

    groups   positions of the members of each group
    method   name of a method in `METHODS`
    options  options of the method; `anchors` contains a list for each score

    A score without turn entries has one turn. Raises UsageError for an unknown method.

    >>> from rag_rewards.rollout import Score
    >>> scores = [Score(1.3, turns=(0.3, 1.0)), Score(0.0, turns=(None, 0.0)), Score(None)]
    >>> credit_of_groups(scores, [[0, 1, 2]], "return", scale="none")
    [[0.65, 0.5], [-0.65, -0.5], None]
    """
    if method not in METHODS:
        raise UsageError(f"no credit method {method!r}{did_you_mean(method, METHODS)}")
    anchors = options.pop("anchors", None)
    result: Advantages = [None] * len(scores)
    for group in groups:
        rewards = [_entries(scores[i]) for i in group]
        if anchors is not None:
            options["anchors"] = [anchors[i] for i in group]
        for i, advantages in zip(group, METHODS[method](rewards, **options), strict=True):
            result[i] = advantages
    return result


def _entries(score: ScoreOrError | None) -> TurnEntries | None:
    if score is None or isinstance(score, RolloutError) or score.value is None:
        return None
    return score.turns or (score.value,)
