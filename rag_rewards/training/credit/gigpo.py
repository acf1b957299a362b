"""GiGPO: the advantage of an episode plus the advantage of a step among steps of the same state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from rag_rewards.errors import UsageError, check_choice
from rag_rewards.training.credit.entries import (
    Advantages,
    Rewards,
    Single,
    accumulated,
    check,
    sample_std,
)
from rag_rewards.turns.turn import Turn

EPSILON = 1e-6
Anchors = Sequence[Sequence[str] | None]


class GigpoCredit(NamedTuple):
    """Advantages, and the share of steps whose state no other step has; None without a step."""

    advantages: Advantages
    alone: float | None


Mode = Literal["mean", "mean_std"]


def anchors_of(turns: Sequence[Turn]) -> list[str]:
    """Return the state before each turn: the last observation, or "" for the prompt.

    The members of a group share the prompt, so "" is the same state for all of them.
    """
    anchors = [""]
    for turn in turns[:-1]:
        text = turn.observation
        if text is None and turn.results is not None:
            # A search without a hit is another state than the prompt.
            text = "\n".join(result.premise for result in turn.results) or "no results"
        anchors.append(anchors[-1] if text is None else text)
    return anchors


def gigpo(
    rewards: Rewards,
    anchors: Anchors,
    *,
    weight: float = 1.0,
    gamma: float = 0.95,
    mode: Mode = "mean",
    dedupe: bool = False,
    similarity: float | None = None,
    single: Single = "zero",
) -> GigpoCredit:
    """Return A_t = A_E + ω·A_S,t for each turn, a step.

    anchors     state before each turn: the last observation, or the prompt for the first turn
    weight      ω
    mode        `mean`: subtract the mean; `mean_std`: also divide by the sample standard
                deviation + 1e-6
    dedupe      whether a rollout counts once in the mean of the episodes, instead of once per turn
    similarity  minimum similarity, 0 to 1, of anchors that count as equal; None for exact equality.
                The comparison takes quadratic time

    A_E is the sum of the rewards of the member, normalized in the group. A_S,t is Σ_{k ≥ t}
    γ^{k−t}·r_k, normalized among the steps with the same anchor. A step without another one has
    A_S = 0. In open search, anchors rarely repeat, so `alone` is often close to 1.

    Source: GiGPO; copy of core_gigpo.py in alibaba/ROLL@8eb27cc roll/pipeline/agentic/utils.py.

    >>> result = gigpo([[0.0, 1.0], [0.0, 0.0]], [["x", "y"], ["x", "z"]])
    >>> result.advantages, result.alone
    ([[0.975, 0.5], [-0.975, -0.5]], 0.5)
    """
    check_choice("mode", mode, Mode)
    check_choice("single", single, Single)
    check(rewards, weight=weight, gamma=gamma)
    _check_anchors(rewards, anchors)
    members = [i for i, entries in enumerate(rewards) if entries is not None]
    values = {i: math.fsum(filter(None, rewards[i] or ())) for i in members}
    steps = [(i, t) for i in members for t in range(len(rewards[i] or ()))]
    scored_values = [values[i] for i in (members if dedupe else [i for i, _ in steps])]
    is_raw = len(members) == 1 and single == "raw"
    episode_scale = sample_std(scored_values)
    returns = {i: accumulated(rewards[i] or (), gamma) for i in members}
    same_state = _clusters([(anchors[i] or ())[t] for i, t in steps], similarity)
    step_values: dict[tuple[int, int], float] = {}
    alone = 0
    for positions in same_state:
        cluster = [steps[position] for position in positions]
        alone += len(cluster) == 1
        scale = sample_std([returns[i][t] for i, t in cluster])
        for i, t in cluster:
            step_values[i, t] = _normalized(returns[i][t], scale, mode)
    advantages: Advantages = [None] * len(rewards)
    for i in members:
        if len(members) == 1:
            advantages[i] = [values[i] if is_raw else 0.0] * len(returns[i])
            continue
        episode = _normalized(values[i], episode_scale, mode)
        advantages[i] = [episode + weight * step_values[i, t] for t in range(len(returns[i]))]
    return GigpoCredit(advantages, alone / len(steps) if steps else None)


def _normalized(value: float, scale: tuple[float, float], mode: str) -> float:
    mean, deviation = scale
    if not deviation:
        return 0.0
    return (value - mean) / (deviation + EPSILON if mode == "mean_std" else 1.0)


def _check_anchors(rewards: Rewards, anchors: Anchors) -> None:
    if len(anchors) != len(rewards):
        raise UsageError(
            f"{len(anchors)} lists of anchors for {len(rewards)} members: give one per member"
        )
    for i, (entries, states) in enumerate(zip(rewards, anchors, strict=True)):
        if entries is not None and len(states or ()) != len(entries):
            raise UsageError(
                f"member {i} has {len(states or ())} anchors for {len(entries)} turns: give the "
                "state before each turn"
            )


def _clusters(anchors: Sequence[str], similarity: float | None) -> list[list[int]]:
    """Return the positions of the anchors that count as equal."""
    exact: dict[str, list[int]] = {}
    for position, anchor in enumerate(anchors):
        exact.setdefault(anchor, []).append(position)
    if similarity is None:
        return list(exact.values())
    merged: list[tuple[str, list[int]]] = []
    for anchor, positions in sorted(exact.items()):
        for representative, cluster in merged:
            if SequenceMatcher(None, anchor, representative).ratio() >= similarity:
                cluster.extend(positions)
                break
        else:
            merged.append((anchor, positions))
    return [positions for _, positions in merged]
