"""Slow and direct implementations of the credit methods, with the statistics module."""

from __future__ import annotations

from statistics import fmean, pstdev, stdev


def _z(value, pool, std, epsilon, inside=0.0, floor=0.0):
    if value is None or len(pool) < 2 or len(set(pool)) == 1:
        return 0.0
    spread = max(std(pool), floor)
    return (value - fmean(pool)) / ((spread**2 + inside) ** 0.5 + epsilon)


def _sums(values, gamma):
    return [
        sum(gamma ** (k - t) * (values[k] or 0.0) for k in range(t, len(values)))
        for t in range(len(values))
    ]


def _split(rewards):
    members = [entries for entries in rewards if entries is not None]
    process = [r for entries in members for r in entries[:-1] if r is not None]
    outcomes = [entries[-1] for entries in members if entries[-1] is not None]
    return (process, outcomes) if len(members) > 1 else ([], [])


def igpo(rewards, norm="joint", gamma=1.0, std=True, std_floor=0.0):
    process, outcomes = _split(rewards)
    if norm == "joint":
        process = outcomes = process + outcomes

    def normal(value, pool):
        if std:
            return _z(value, pool, pstdev, 1e-6, 1e-8, std_floor)
        if value is None or len(pool) < 2 or len(set(pool)) == 1:
            return 0.0
        return value - fmean(pool)

    return [
        None
        if entries is None
        else _sums(
            [*(normal(r, process) for r in entries[:-1]), normal(entries[-1], outcomes)], gamma
        )
        for entries in rewards
    ]


def mt_grpo(rewards, weight=1.0, reach="own", gamma=1.0):
    members = [entries for entries in rewards if entries is not None]
    outcomes = [entries[-1] or 0.0 for entries in members]
    sums = [(e[-1] or 0.0) + weight * sum(r or 0.0 for r in e[:-1]) for e in members]
    result = []
    for entries in rewards:
        if entries is None:
            result.append(None)
            continue
        outcome = _z(entries[-1] or 0.0, outcomes, stdev, 1e-4)
        if len(entries) == 1:
            result.append([_z((entries[0] or 0.0), sums, stdev, 1e-4)])
            continue
        process = []
        for t, reward in enumerate(entries[:-1]):
            pool = [e[t] for e in members if len(e) > t + 1 and e[t] is not None]
            process.append(_z(reward, pool, stdev, 1e-4))
        if reach == "rest":
            process = _sums(process, gamma)
        result.append([*(outcome + weight * p for p in process), outcome])
    return result


def return_to_go(rewards, gamma=1.0, scale="std"):
    returns = [None if e is None else _sums(e, gamma) for e in rewards]
    members = [values for values in returns if values is not None]
    if len(members) < 2:
        return [None if values is None else [0.0] * len(values) for values in returns]
    divisor = pstdev([values[0] for values in members]) if scale == "std" else 1.0
    if scale == "std" and divisor <= 1e-9 * max(1.0, abs(fmean([m[0] for m in members]))):
        return [None if values is None else [0.0] * len(values) for values in returns]

    def baseline(t):
        return fmean([values[min(t, len(values) - 1)] for values in members])

    return [
        None if values is None else [(g - baseline(t)) / divisor for t, g in enumerate(values)]
        for values in returns
    ]


def gigpo(rewards, anchors, weight=1.0, gamma=0.95, mode="mean", dedupe=False):
    members = [i for i, e in enumerate(rewards) if e is not None]
    if len(members) < 2:
        return [None if e is None else [0.0] * len(e) for e in rewards]

    def normal(value, pool):
        if mode == "mean":
            return 0.0 if len(pool) < 2 else value - fmean(pool)
        return _z(value, pool, stdev, 1e-6)

    def episode(i):
        return sum(r or 0.0 for r in rewards[i])

    steps = [(i, t) for i in members for t in range(len(rewards[i]))]
    episodes = [episode(i) for i in members] if dedupe else [episode(i) for i, _ in steps]
    returns = {i: _sums(rewards[i], gamma) for i in members}
    result = []
    for i, entries in enumerate(rewards):
        if entries is None:
            result.append(None)
            continue
        result.append(
            [
                normal(episode(i), episodes)
                + weight
                * normal(
                    returns[i][t],
                    [returns[j][k] for j, k in steps if anchors[j][k] == anchors[i][t]],
                )
                for t in range(len(entries))
            ]
        )
    return result


def gdpo(components, weights, epsilon, gamma=1.0, std_floor=0.0):
    totals = [None if m is None else [0.0] * len(next(iter(m.values()))) for m in components]
    for name, weight in weights.items():
        rewards = [None if m is None else m[name] for m in components]
        process, outcomes = _split(rewards)
        for sums, entries in zip(totals, rewards, strict=True):
            if entries is None:
                continue
            normal = [_z(r, process, stdev, epsilon, 0.0, std_floor) for r in entries[:-1]]
            normal.append(_z(entries[-1], outcomes, stdev, epsilon, 0.0, std_floor))
            for t, value in enumerate(_sums(normal, gamma)):
                sums[t] += weight * value
    return totals


def place(rewards, spans, length):
    tokens = [0.0] * length
    filled = [t for t, (start, end) in enumerate(spans) if end > start]
    for t, reward in enumerate(rewards):
        later = [k for k in filled if k >= t]
        tokens[spans[later[0] if later else filled[-1]][1] - 1] += reward or 0.0
    return tokens
