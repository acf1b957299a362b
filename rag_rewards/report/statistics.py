"""Statistics of scored rows: distributions, groups, rates, steps, and drift over training.

Notes explain why a statistic is empty or misleading: equal rewards, groups of one rollout, or
unscored rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rag_rewards.errors import shorten
from rag_rewards.groups import positions_by_key
from rag_rewards.report.drift import Alarm, TrainingStep, alarms, mean_of
from rag_rewards.report.facts import Facts
from rag_rewards.report.turn_statistics import (
    TurnStatistics,
    turn_notes,
    turn_rates,
    turn_statistics,
)
from rag_rewards.rows import ScoredRow
from rag_rewards.rows.decisions import decided_as, undecided_warning
from rag_rewards.training.advantages import mean, mean_std, overflow_unit

BINS = 24
MAX_POINTS = 120
"""Points of a line. More training steps are averaged."""
MAX_DISCRETE = 12
"""Different values of a distribution that is counted by value."""


class Distribution(msgspec.Struct, frozen=True):
    """The frequencies of values.

    If `discrete` is true, `edges` are the values, otherwise the edges of bins. `message` says that
    there is no value, or only one.
    """

    name: str
    n: int
    missing: int
    mean: float | None
    std: float | None
    low: float | None
    high: float | None
    edges: list[float]
    counts: list[int]
    discrete: bool
    message: str = ""

    def counts_of(self, values: Sequence[float | None]) -> list[int]:
        """Return the frequencies of other values, which lie in the range of this distribution."""
        present = [value for value in values if value is not None]
        if self.discrete:
            frequencies = Counter(present)
            return [frequencies[edge] for edge in self.edges]
        counts = [0] * (len(self.edges) - 1)
        unit = overflow_unit(self.edges)
        start = self.edges[0] / unit
        width = self.edges[1] / unit - start
        for value in present:
            counts[min(int((value / unit - start) / width) if width else 0, len(counts) - 1)] += 1
        return counts


class Signal(msgspec.Struct, frozen=True):
    """The training signal of a reward or a component, over groups of at least two rollouts.

    dead    share of the groups in which all values are equal
    spread  mean standard deviation within groups
    """

    name: str
    dead: float | None
    spread: float | None


class Statistics(msgspec.Struct, kw_only=True):
    """All statistics of a report.

    names    the reward, the components, and `correct` if the rows contain it
    matrix   correlation of each pair of names
    sizes    number of groups by their number of rollouts
    spreads  standard deviations of the reward within groups
    turns    statistics of search agents, and the distribution of their numbers of searches
    """

    rows: int
    scored: int
    names: list[str]
    distributions: list[Distribution]
    matrix: list[list[float | None]]
    signals: list[Signal]
    sizes: dict[int, int]
    spreads: Distribution
    rates: dict[str, float | None]
    words: Distribution
    steps: list[TrainingStep]
    alarms: list[Alarm]
    notes: list[str]
    turns: TurnStatistics | None = None
    searches: Distribution | None = None


def statistics(
    rows: Sequence[ScoredRow], facts: Sequence[Facts], groups: Sequence[Sequence[int]]
) -> Statistics:
    """Return the statistics of rows. `groups` contains positions of rows."""
    names = list(dict.fromkeys(name for row in rows for name in row.components or ()))
    columns: dict[str, list[float | None]] = {"reward": [row.reward for row in rows]}
    for name in names:
        columns[name] = [(row.components or {}).get(name) for row in rows]
    if any(row.correct is not None for row in rows) and "correct" not in columns:
        columns["correct"] = [row.correct for row in rows]
    steps = _steps(rows, facts, columns, groups)
    turns = turn_statistics(rows, facts, groups)
    return Statistics(
        rows=len(rows),
        scored=sum(row.reward is not None for row in rows),
        names=list(columns),
        distributions=[distribution(name, values) for name, values in columns.items()],
        matrix=[[correlation(a, b) for b in columns.values()] for a in columns.values()],
        signals=[_signal(name, values, groups) for name, values in columns.items()],
        sizes=_sizes(groups),
        spreads=distribution(
            "spread of the reward within groups", _spreads(columns["reward"], groups)
        ),
        rates=rates(rows, facts),
        words=distribution("words", [float(each.words) for each in facts]),
        steps=steps,
        alarms=alarms(steps, columns, max(turns.searches) if turns else 0.0),
        notes=[*_notes(rows, columns, groups), *_undecided_notes(rows, facts), *turn_notes(turns)],
        turns=turns,
        searches=distribution("searches per rollout", turns.searches) if turns else None,
    )


def distribution(name: str, values: Sequence[float | None]) -> Distribution:
    """Count the values one by one if there are at most twelve different values, else in bins.

    >>> result = distribution("accuracy", [0.0, 1.0, 1.0, None])
    >>> result.edges, result.counts, result.missing
    ([0.0, 1.0], [1, 2], 1)
    """
    present = [value for value in values if value is not None]
    missing = len(values) - len(present)
    if not present:
        message = "no rollout has a value"
        return Distribution(name, 0, missing, None, None, None, None, [], [], True, message)
    center, std = mean_std(present)
    low, high = min(present), max(present)
    different = sorted(set(present))
    message = f"constant {low:g}" if low == high else ""
    if len(different) <= MAX_DISCRETE:
        frequencies = Counter(present)
        counts = [frequencies[value] for value in different]
        edges, discrete = different, True
    else:
        unit = overflow_unit(present)
        start, width = low / unit, (high / unit - low / unit) / BINS
        edges = [(start + i * width) * unit for i in range(BINS + 1)]
        counts, discrete = [0] * BINS, False
        for value in present:
            counts[min(int((value / unit - start) / width) if width else 0, BINS - 1)] += 1
    return Distribution(
        name, len(present), missing, center, std, low, high, edges, counts, discrete, message
    )


def correlation(first: Sequence[float | None], second: Sequence[float | None]) -> float | None:
    """Return Pearson's correlation over the rollouts with both values; None if one is constant.

    >>> correlation([0, 1, 2], [0, 2, 4]), correlation([1, 1], [0, 1])
    (1.0, None)
    """
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if len(pairs) < 2:
        return None
    xs, ys = [a for a, _ in pairs], [b for _, b in pairs]
    (mx, sx), (my, sy) = mean_std(xs), mean_std(ys)
    if sx < 1e-12 or sy < 1e-12:
        return None
    ux, uy = overflow_unit(xs), overflow_unit(ys)
    covariance = mean((a / ux - mx / ux) * (b / uy - my / uy) for a, b in pairs)
    return round(max(-1.0, min(1.0, covariance / (sx / ux * (sy / uy)))), 6)


def _grouped(values: Sequence[float | None], groups: Iterable[Sequence[int]]) -> list[list[float]]:
    """Return the values of each group with at least two values."""
    present = [[v for i in group if (v := values[i]) is not None] for group in groups]
    return [group for group in present if len(group) > 1]


def _spreads(values: Sequence[float | None], groups: Sequence[Sequence[int]]) -> list[float | None]:
    return [mean_std(group)[1] for group in _grouped(values, groups)]


def _signal(name: str, values: Sequence[float | None], groups: Sequence[Sequence[int]]) -> Signal:
    grouped = _grouped(values, groups)
    if not grouped:
        return Signal(name, None, None)
    dead = sum(max(group) == min(group) for group in grouped) / len(grouped)
    return Signal(name, dead, mean(mean_std(group)[1] for group in grouped))


def _sizes(groups: Sequence[Sequence[int]]) -> dict[int, int]:
    return dict(sorted(Counter(map(len, groups)).items()))


def rates(rows: Sequence[ScoredRow], facts: Sequence[Facts]) -> dict[str, float | None]:
    """Return shares and means over the rollouts; None if the rows do not contain the values."""
    n = len(rows)
    if not n:
        return {}
    shares: dict[str, float | None] = {
        "abstentions": sum(each.abstained for each in facts) / n,
        "refusals": sum(each.refused for each in facts) / n,
        "with citations": sum(each.cites > 0 for each in facts) / n,
        "citations per response": mean(each.cites for each in facts),
        "words per response": mean(each.words for each in facts),
        "empty": sum(not each.words for each in facts) / n,
        "cut at the length limit": sum(each.cut for each in facts) / n,
    }
    formats = [v for row in rows if (v := (row.components or {}).get("format")) is not None]
    decisions = [each.decision for each in facts if each.decision is not None]
    for name, decision in (("undecided answers", "undecided"), ("decided by the judge", "judge")):
        shares[name] = mean(each == decision for each in decisions) if decisions else None
    shares["correct format"] = mean(value >= 1 for value in formats) if formats else None
    return shares


def _notes(
    rows: Sequence[ScoredRow],
    columns: dict[str, list[float | None]],
    groups: Sequence[Sequence[int]],
) -> list[str]:
    """Explain why charts are empty or misleading."""
    if not rows:
        return ["the file has no row that can be shown"]
    notes = []
    rewards = [value for value in columns["reward"] if value is not None]
    unscored = len(rows) - len(rewards)
    if not rewards:
        notes.append("no rollout has a reward: only the responses are shown")
    elif unscored:
        notes.append(f"{unscored:,} rollouts are unscored and left out of the means{_reason(rows)}")
    if len(rewards) > 1 and min(rewards) == max(rewards):
        notes.append(f"every reward is {rewards[0]:g}: there is no training signal")
    elif rewards:
        notes += [
            f"{name} is {values[0]:g} for every rollout: it gives no training signal"
            for name, values in columns.items()
            if len(set(values)) == 1 and values[0] is not None and len(values) > 1
        ]
    single = sum(len(group) == 1 for group in groups)
    if single == len(groups):
        notes.append("every group has one rollout: the spread within groups is undefined")
    elif single:
        notes.append(f"{single:,} of {len(groups):,} groups have one rollout and no spread")
    signatures = {row.signature or "" for row in rows}
    if len(signatures) > 1:
        notes.append(
            f"the rows have {len(signatures)} different signatures: do not compare their rewards"
        )
    if missing := sum(row.missing_before for row in rows):
        notes.append(f"{missing:,} rollouts are missing, because the dump could not write them")
    if repeated := len(rows) - len({str(row.id) for row in rows}):
        notes.append(f"{repeated:,} rows repeat the id of another row")
    return notes


def _undecided_notes(rows: Sequence[ScoredRow], facts: Sequence[Facts]) -> list[str]:
    """Return the warning about many undecided answers, and their most frequent reasons."""
    decisions = Counter(each.decision for each in facts if each.decision is not None)
    notes = [warning] if (warning := undecided_warning(decisions)) else []
    if reasons := _frequent_reasons(row.details or {} for row in rows):
        notes.append(f"undecided answers, by the words that nothing explains: {', '.join(reasons)}")
    return notes


def _frequent_reasons(details: Iterable[Mapping[str, Any]], count: int = 3) -> list[str]:
    """Return the most frequent reasons for undecided answers, each with its number of answers.

    >>> _frequent_reasons([{"decision": "undecided", "decision_reason": "or, rome"}])
    ['“or, rome” (1)']
    """
    reasons = Counter(
        shorten(str(each.get("decision_reason")), 60)
        for each in details
        if decided_as(each) == "undecided"
    )
    return [f"“{reason}” ({number:,})" for reason, number in reasons.most_common(count)]


def _reason(rows: Sequence[ScoredRow]) -> str:
    """Return the most frequent error of unscored rows, as an addition to a note."""
    reasons = Counter(row.error_text for row in rows if row.error_text)
    if not reasons:
        return ""
    [(reason, count)] = reasons.most_common(1)
    return f"; {count:,} of them with the error: {shorten(reason, 160)}"


# --- over training -----------------------------------------------------------------------------


_MEASURES: dict[str, Callable[[Facts], float]] = {
    "words": lambda facts: float(facts.words),
    "tags": lambda facts: float(facts.tags),
    "citations": lambda facts: float(facts.cites),
    "abstentions and refusals": lambda facts: float(facts.abstained or facts.refused),
    "cut at the length limit": lambda facts: float(facts.cut),
}


def _steps(
    rows: Sequence[ScoredRow],
    facts: Sequence[Facts],
    columns: dict[str, list[float | None]],
    groups: Sequence[Sequence[int]],
) -> list[TrainingStep]:
    """Return at most MAX_POINTS points; none if the rows have fewer than two training steps."""
    members = positions_by_key(row.step for row in rows)
    order = sorted(step for step in members if step is not None)
    if len(order) < 2:
        return []
    dead = _dead_by_row(columns["reward"], groups)
    has_turns = any(each.turns for each in facts)
    has_unscored = None in columns["reward"]
    size = math.ceil(len(order) / MAX_POINTS)
    points = []
    for start in range(0, len(order), size):
        inside = [i for step in order[start : start + size] for i in members[step]]
        values = {name: mean_of(column[i] for i in inside) for name, column in columns.items()}
        values |= {
            name: mean(measure(facts[i]) for i in inside) for name, measure in _MEASURES.items()
        }
        if has_turns:
            values |= turn_rates([facts[i] for i in inside])
        if has_unscored:
            values["unscored"] = mean(columns["reward"][i] is None for i in inside)
        values["groups without signal"] = mean_of(dead[i] for i in inside)
        points.append(TrainingStep(order[start], len(inside), values))
    return points


def _dead_by_row(
    rewards: Sequence[float | None], groups: Sequence[Sequence[int]]
) -> list[float | None]:
    """Return 1 for the rows of groups with equal rewards, and None for groups of one rollout."""
    out: list[float | None] = [None] * len(rewards)
    for group in groups:
        values = [v for i in group if (v := rewards[i]) is not None]
        if len(values) > 1:
            for i in group:
                out[i] = float(max(values) == min(values))
    return out
