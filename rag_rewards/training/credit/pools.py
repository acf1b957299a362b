"""Normalization over pools of entries: IGPO and GDPO."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from rag_rewards.errors import UsageError, check_choice
from rag_rewards.settings import did_you_mean
from rag_rewards.training.advantages import mean_std
from rag_rewards.training.credit.entries import (
    Advantages,
    Entries,
    Rewards,
    Single,
    accumulated,
    check,
    check_number,
    sample_std,
    scored,
    standardized,
)

GdpoPreset = Literal["verl", "trl", "swift"]
Norm = Literal["joint", "separate"]
Normalize = Callable[[float], float]

_EPSILON: dict[str, float] = {"verl": 1e-6, "trl": 1e-4, "swift": 1e-8}


def igpo(
    rewards: Rewards,
    *,
    norm: Norm = "joint",
    gamma: float = 1.0,
    std: bool = True,
    std_floor: float = 0.0,
    single: Single = "zero",
) -> Advantages:
    """Return A_t = z_t + γ·A_{t+1} with z = (r − μ)/(√(max(σ, f)² + 1e-8) + 1e-6) over a pool.

    norm       `separate`: process rewards of all members and turns are one pool, outcomes another;
               `joint`: all entries are one pool
    gamma      discount of later turns
    std        whether to divide by the standard deviation
    std_floor  f, the minimum of σ, so that rewards that are almost equal do not get full
               advantages; 0 as published

    σ² is the population variance. A pool of one value, or of equal values, gives 0. Each further
    turn of a member costs μ/σ of its pool, so that the length of a rollout has an advantage of its
    own; `return_to_go` has no such term. Source: IGPO, released code at 745078b, core_algos.py.

    >>> a, b = igpo([[0.8, 1.1, 1.0], [-0.2, 0.0]], norm="separate")
    >>> [round(x, 4) for x in a], [round(x, 4) for x in b]
    ([2.3794, 1.9596, 1.0], [-2.3794, -1.0])
    """
    check_choice("norm", norm, Norm)
    check_choice("single", single, Single)
    check(rewards, gamma=gamma, std_floor=std_floor)
    members = scored(rewards)
    if len(members) == 1 and single == "raw":
        return _accumulate(rewards, _same, _same, gamma)
    process = [entry for member in members for entry in member[:-1] if entry is not None]
    outcomes = [member[-1] for member in members if member[-1] is not None]
    if len(members) <= 1:
        process, outcomes = [], []
    floor = std_floor if std else None
    if norm == "joint":
        both = _pool(process + outcomes, floor)
        return _accumulate(rewards, both, both, gamma)
    return _accumulate(rewards, _pool(process, floor), _pool(outcomes, floor), gamma)


def _same(value: float) -> float:
    return value


def _zero(value: float) -> float:
    return 0.0


def _pool(values: Sequence[float], std_floor: float | None) -> Normalize:
    """Return the normalization of a pool; without a floor, only the mean is subtracted."""
    if len(values) <= 1:
        return _zero
    mean, deviation = mean_std(values)
    if not deviation:
        return _zero
    scale = 1.0
    if std_floor is not None:
        scale = math.sqrt(max(deviation, std_floor) ** 2 + 1e-8) + 1e-6
    return lambda value: (value - mean) / scale


def _accumulate(
    rewards: Rewards, process: Normalize, outcome: Normalize, gamma: float
) -> Advantages:
    result: Advantages = []
    for entries in rewards:
        if entries is None:
            result.append(None)
            continue
        last = entries[-1]
        normal = [None if entry is None else process(entry) for entry in entries[:-1]]
        normal.append(None if last is None else outcome(last))
        result.append(accumulated(normal, gamma))
    return result


def gdpo(
    components: Sequence[Mapping[str, Entries] | None],
    *,
    weights: Mapping[str, float] | None = None,
    preset: GdpoPreset = "verl",
    gamma: float = 1.0,
    std_floor: float = 0.0,
    single: Single = "zero",
) -> Advantages:
    """Return Σ_k w_k·A_k over components k, each of which is normalized by itself in the group.

    components  rewards of the turns of each member, by component; None for an unscored member
    weights     weight of each component; 1 for the others
    preset      constant of z = (r − μ)/(max(s, f) + ε), with the sample standard deviation s: verl
                1e-6, trl 1e-4, swift 1e-8
    std_floor   f, the minimum of s, so that rewards that are almost equal do not get full
                advantages; 0 as published

    The process rewards of a component are one pool and its outcomes another, and A_k accumulates
    both as in `igpo`. Equal values give 0. `whiten` normalizes the result over the batch. Raises
    UsageError for members with different components, for components with different numbers of
    turns, and for the weight of a component that does not exist.

    Sources of the presets: verl 0.9.1 core_algos.py:compute_gdpo_outcome_advantage, TRL 1.16
    multi_objective_aggregation="normalize_then_sum", and ms-swift 4.6 rl_core/advantage.py. The
    method is GDPO (2601.05242).

    >>> group = [{"outcome": [1.0], "format": [1.0]}, {"outcome": [0.0], "format": [1.0]}]
    >>> [round(a[0], 4) for a in gdpo(group)]
    [0.7071, -0.7071]
    """
    check_choice("preset", preset, GdpoPreset)
    check_choice("single", single, Single)
    names = dict.fromkeys(name for member in components for name in member or ())
    _check_components(components, names, weights or {})
    totals: Advantages = [
        None if member is None else [0.0] * max(map(len, member.values()), default=0)
        for member in components
    ]
    scale = (_EPSILON[preset], std_floor)
    for name in names:
        rewards = [None if member is None else member[name] for member in components]
        weight = 1.0 if weights is None else weights.get(name, 1.0)
        for sums, advantages in zip(
            totals, _gdpo_component(rewards, scale, gamma, single), strict=True
        ):
            if sums is not None and advantages is not None:
                for t, advantage in enumerate(advantages):
                    sums[t] += weight * advantage
    return totals


def _check_components(
    components: Sequence[Mapping[str, Entries] | None],
    names: Collection[str],
    weights: Mapping[str, float],
) -> None:
    """Raise UsageError unless all members have the same components, with one entry per turn."""
    for i, member in enumerate(components):
        if member is None:
            continue
        if not member:
            raise UsageError(f"member {i} has no component: give at least one")
        for name in names:
            if name not in member:
                raise UsageError(
                    f"member {i} has no component {name!r}: give all members the same components"
                )
        if len({len(entries) for entries in member.values()}) > 1:
            raise UsageError(
                f"member {i} has components with different numbers of turns: give each component "
                "one entry per turn"
            )
    for name, weight in weights.items():
        check_number(f"weights.{name}", weight)
    for name in weights if names else ():
        if name not in names:
            raise UsageError(f"no component {name!r}{did_you_mean(name, names)}")


def _gdpo_component(
    rewards: Rewards, scale: tuple[float, float], gamma: float, single: Single
) -> Advantages:
    check(rewards, gamma=gamma, std_floor=scale[1])
    members = scored(rewards)
    if len(members) == 1 and single == "raw":
        return _accumulate(rewards, _same, _same, gamma)
    process = [entry for member in members for entry in member[:-1] if entry is not None]
    outcomes = [member[-1] for member in members if member[-1] is not None]
    if len(members) <= 1:
        process, outcomes = [], []
    return _accumulate(
        rewards, _sample_pool(process, *scale), _sample_pool(outcomes, *scale), gamma
    )


def _sample_pool(values: Sequence[float], epsilon: float, std_floor: float) -> Normalize:
    mean, deviation = sample_std(values)
    scale = max(deviation, std_floor) if deviation else 0.0
    return lambda value: standardized(value, mean, scale, epsilon)


def whiten(
    advantages: Advantages,
    tokens: Sequence[Sequence[int] | None] | None = None,
    *,
    preset: GdpoPreset = "verl",
) -> Advantages:
    """Return the advantages of all groups of a batch, normalized over the batch (GDPO).

    tokens  with preset=verl, the number of own tokens of each turn; without it, a turn counts once

    verl: (x − mean)/√(var + 1e-8) with the sample variance over all own tokens. trl and swift:
    (x − mean)/(s + ε) with the sample standard deviation s over the rollouts, each with the
    advantage of its first turn; ε is 1e-4 in trl and 1e-8 in swift (ms-swift 4.6.0,
    rl_core/advantage.py:compute_advantages). A batch without spread gives 0.

    >>> whiten([[1.0], [-1.0], None], preset="trl")[2] is None
    True
    """
    check_choice("preset", preset, GdpoPreset)
    if preset == "verl":
        return _whiten_tokens(advantages, tokens)
    mean, deviation = sample_std([member[0] for member in advantages if member])
    return [
        None
        if member is None
        else [_z(a, mean, deviation + _EPSILON[preset]) for a in member]
        if deviation
        else [0.0] * len(member)
        for member in advantages
    ]


def _z(value: float, mean: float, scale: float) -> float:
    return (value - mean) / scale


def _whiten_tokens(
    advantages: Advantages, tokens: Sequence[Sequence[int] | None] | None
) -> Advantages:
    counts = [
        None if member is None else ([1] * len(member) if given is None else given)
        for member, given in zip(advantages, tokens or [None] * len(advantages), strict=True)
    ]
    pairs = [
        (value, count)
        for member, numbers in zip(advantages, counts, strict=True)
        for value, count in zip(member or (), numbers or (), strict=True)
        if count
    ]
    n = sum(count for _, count in pairs)
    if n < 2 or len({value for value, _ in pairs}) < 2:
        return [None if member is None else [0.0] * len(member) for member in advantages]
    mean = math.fsum(value * count for value, count in pairs) / n
    variance = math.fsum((value - mean) ** 2 * count for value, count in pairs) / (n - 1)
    scale = math.sqrt(variance + 1e-8)
    return [
        None if member is None else [_z(value, mean, scale) for value in member]
        for member in advantages
    ]
