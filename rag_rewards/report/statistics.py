"""Statistics of scored rows: distributions, groups, rates, and changes over training.

Notes explain why a statistic is empty or misleading: equal rewards, groups of one rollout, or
unscored rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from operator import mul
from typing import Any

import msgspec

from rag_rewards.errors import shorten
from rag_rewards.groups import positions_by_key
from rag_rewards.report.facts import Facts
from rag_rewards.report.turn_statistics import (
    SEARCHES,
    SHARES,
    Rates,
    TurnStatistics,
    search_drift,
    turn_notes,
    turn_rates,
    turn_statistics,
)
from rag_rewards.rows import ScoredRow
from rag_rewards.rows.decisions import decided_as, undecided_warning
from rag_rewards.training.advantages import mean, mean_std, overflow_unit

Columns = dict[str, list[float | None]]
"""The reward, the components and `correct` of each row, by name."""
RISING = {"abstentions and refusals", "cut at the length limit", "groups without signal", *SHARES}
"""The shares whose increase during the training is an alarm."""
BINS = 24
MAX_POINTS = 120
"""Points of a line. More training steps are averaged."""
MAX_DISCRETE = 12
"""Different values of a distribution that is counted by value."""


class Frequencies(msgspec.Struct, frozen=True):
    """The values of one file in a distribution. The counts are those of its edges.

    `message` says that there is no value, or only one.
    """

    n: int
    missing: int
    counts: list[int]
    mean: float | None = None
    std: float | None = None
    message: str = ""


class Distribution(msgspec.Struct, frozen=True):
    """The frequencies of the values of one or several files.

    If `discrete` is true, `edges` are the values, otherwise the edges of bins.
    """

    name: str
    edges: list[float]
    discrete: bool
    runs: list[Frequencies]


class Signal(msgspec.Struct, frozen=True):
    """The training signal of a reward or a component, over groups of at least two rollouts.

    dead    share of the groups in which all values are equal
    spread  mean standard deviation within groups
    """

    name: str
    dead: float | None
    spread: float | None


class TrainingStep(msgspec.Struct, frozen=True):
    """Means over the rollouts of one training step, or of several adjacent steps."""

    step: int
    n: int
    values: dict[str, float | None]


class Alarm(msgspec.Struct, frozen=True):
    """A change from the first to the last quarter of the training steps."""

    name: str
    message: str


class Statistics(msgspec.Struct, kw_only=True):
    """The statistics of a file.

    names    the reward, the components, and `correct` if the rows contain it
    matrix   correlation of each pair of names
    sizes    number of groups by their number of rollouts
    turns    statistics of search agents
    """

    rows: int
    scored: int
    names: list[str]
    matrix: list[list[float | None]]
    signals: list[Signal]
    sizes: dict[int, int]
    rates: Rates
    steps: list[TrainingStep]
    alarms: list[Alarm]
    notes: list[str]
    turns: TurnStatistics | None = None


def statistics(
    rows: Sequence[ScoredRow], facts: Sequence[Facts], groups: Sequence[Sequence[int]]
) -> Statistics:
    """Return the statistics of rows. `groups` contains positions of rows."""
    names = list(dict.fromkeys(name for row in rows for name in row.components or ()))
    columns: Columns = {"reward": [row.reward for row in rows]}
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
        matrix=_matrix(columns),
        signals=[_signal(name, values, groups) for name, values in columns.items()],
        sizes=dict(sorted(Counter(map(len, groups)).items())),
        rates=_rates(rows, facts),
        steps=steps,
        alarms=_alarms(steps, columns, turns.most_searches if turns else 0),
        notes=[*_notes(rows, columns, groups), *_undecided_notes(rows, facts), *turn_notes(turns)],
        turns=turns,
    )


def distribution(name: str, *columns: Sequence[float | None]) -> Distribution:
    """Return the frequencies of the values of files, with one column for each file.

    The values are counted one by one if there are at most twelve different values, else in bins.

    >>> result = distribution("accuracy", [0.0, 1.0, 1.0, None])
    >>> result.edges, result.runs[0].counts, result.runs[0].missing
    ([0.0, 1.0], [1, 2], 1)
    """
    present = [[value for value in column if value is not None] for column in columns]
    missing = [column.count(None) for column in columns]
    edges = sorted({value for values in present for value in values})
    if len(edges) <= MAX_DISCRETE:
        counts = [[values.count(edge) for edge in edges] for values in present]
        runs = list(map(_frequencies, present, missing, counts))
        return Distribution(name, edges, True, runs)
    unit = overflow_unit(edges)
    low = edges[0] / unit
    width = (edges[-1] / unit - low) / BINS or 1.0
    counts = []
    for values in present:
        bins = Counter(min(int((value / unit - low) / width), BINS - 1) for value in values)
        counts.append([bins[i] for i in range(BINS)])
    edges = [(low + i * width) * unit for i in range(BINS + 1)]
    return Distribution(name, edges, False, list(map(_frequencies, present, missing, counts)))


def _frequencies(values: Sequence[float], missing: int, counts: list[int]) -> Frequencies:
    if not values:
        return Frequencies(0, missing, counts, message="no rollout has a value")
    message = f"constant {values[0]:g}" if min(values) == max(values) else ""
    return Frequencies(len(values), missing, counts, *mean_std(values), message)


def correlation(first: Sequence[float | None], second: Sequence[float | None]) -> float | None:
    """Return Pearson's correlation over the rollouts with both values; None if one is constant.

    >>> correlation([0, 1, 2], [0, 2, 4]), correlation([1, 1], [0, 1])
    (1.0, None)
    """
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    return _product(*map(_standardized, zip(*pairs, strict=True))) if pairs else None


def _standardized(values: Sequence[float]) -> list[float] | None:
    """Return the values with mean 0 and sum of squares 1; None if they are constant."""
    unit = overflow_unit(values)
    center, std = mean_std([value / unit for value in values])
    if std < 1e-12:
        return None
    length = std * math.sqrt(len(values))
    return [(value / unit - center) / length for value in values]


def _product(first: Sequence[float] | None, second: Sequence[float] | None) -> float | None:
    """Return the correlation of two columns from `_standardized`."""
    if first is None or second is None:
        return None
    return round(math.fsum(map(mul, first, second)), 6)


def _matrix(columns: Columns) -> list[list[float | None]]:
    """Return the correlation of each pair of columns.

    Columns are standardized once, and again only for a pair that lacks values in different rows.
    """
    missing: dict[str, list[int]] = {}
    standard: dict[str, list[float] | None] = {}
    for name, column in columns.items():
        missing[name] = [i for i, value in enumerate(column) if value is None]
        present = [value for value in column if value is not None]
        standard[name] = _standardized(present) if present else None
    values = {}
    for a, b in combinations_with_replacement(columns, 2):
        same = missing[a] == missing[b]
        value = _product(standard[a], standard[b]) if same else correlation(columns[a], columns[b])
        values[a, b] = values[b, a] = value
    return [[values[a, b] for b in columns] for a in columns]


def _grouped(values: Sequence[float | None], groups: Iterable[Sequence[int]]) -> list[list[float]]:
    """Return the values of each group with at least two values."""
    present = [[v for i in group if (v := values[i]) is not None] for group in groups]
    return [group for group in present if len(group) > 1]


def spreads(rows: Sequence[ScoredRow], groups: Sequence[Sequence[int]]) -> list[float]:
    """Return the standard deviation of the reward in each group of at least two rollouts."""
    return [mean_std(group)[1] for group in _grouped([row.reward for row in rows], groups)]


def _signal(name: str, values: Sequence[float | None], groups: Sequence[Sequence[int]]) -> Signal:
    grouped = _grouped(values, groups)
    if not grouped:
        return Signal(name, None, None)
    dead = sum(max(group) == min(group) for group in grouped) / len(grouped)
    return Signal(name, dead, mean(mean_std(group)[1] for group in grouped))


def _rates(rows: Sequence[ScoredRow], facts: Sequence[Facts]) -> Rates:
    """Return shares and means over the rollouts; None if the rows do not contain the values."""
    formats = [v for row in rows if (v := (row.components or {}).get("format")) is not None]
    decisions = [each.decision for each in facts if each.decision is not None]
    values: dict[str, list[float]] = {
        "abstentions": [each.abstained for each in facts],
        "refusals": [each.refused for each in facts],
        "with citations": [each.cites > 0 for each in facts],
        "citations per response": [each.cites for each in facts],
        "tags per response": [each.tags for each in facts],
        "words per response": [each.words for each in facts],
        "empty": [not each.words for each in facts],
        "cut at the length limit": [each.cut for each in facts],
        "undecided answers": [each == "undecided" for each in decisions],
        "decided by the judge": [each == "judge" for each in decisions],
        "correct format": [value >= 1 for value in formats],
    }
    return {name: mean_of(column) for name, column in values.items()}


def _notes(
    rows: Sequence[ScoredRow],
    columns: Columns,
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


def _steps(
    rows: Sequence[ScoredRow],
    facts: Sequence[Facts],
    columns: Columns,
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
        values |= _rates([rows[i] for i in inside], [facts[i] for i in inside])
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


def _alarms(steps: Sequence[TrainingStep], columns: Columns, searches: int) -> list[Alarm]:
    """Return the changes from the first to the last quarter of the steps.

    They are: length, tags or citations by half or more; the shares in RISING by 0.2 or more; a
    component whose mean reaches 98% of its range; a reward that falls by half its standard
    deviation; a change of the number of searches, see `search_drift`, where `searches` is the
    largest number of searches of a rollout.
    """
    if len(steps) < 4:
        return []
    quarter = max(len(steps) // 4, 1)
    ends = [_means(steps[:quarter]), _means(steps[-quarter:])]
    for end in ends:
        end["abstentions and refusals"] = end.pop("abstentions", 0.0) + end.pop("refusals", 0.0)
    pairs = {name: (first, ends[1][name]) for name, first in ends[0].items() if name in ends[1]}
    result: list[Alarm] = []
    for name in ("words per response", "tags per response", "citations per response"):
        first, last = pairs[name]
        if max(first, last) >= max(1, 1.5 * min(first, last)):
            result.append(Alarm(name, f"changed from {first:.3g} to {last:.3g}"))
    for name, (first, last) in pairs.items():
        if name in RISING and last - first >= 0.2:
            result.append(Alarm(name, f"increased from {first:.0%} to {last:.0%}"))
    if SEARCHES in pairs:
        result += [Alarm("searches", each) for each in search_drift(*pairs[SEARCHES], searches)]
    for name, values in columns.items():
        if name not in ("reward", "correct") and name in pairs:
            result += _saturation(name, [v for v in values if v is not None], pairs[name])
    if "reward" in pairs:
        first, last = pairs["reward"]
        spread = mean_std([v for v in columns["reward"] if v is not None])[1]
        if first - last > 0.5 * spread > 0:
            result.append(Alarm("reward", f"decreased from {first:.3g} to {last:.3g}"))
    return result


def _means(steps: Sequence[TrainingStep]) -> dict[str, float]:
    """Return the mean over steps of each value that a step has."""
    names = dict.fromkeys(name for step in steps for name in step.values)
    means = {name: mean_of(step.values.get(name) for step in steps) for name in names}
    return {name: value for name, value in means.items() if value is not None}


def _saturation(name: str, values: Sequence[float], means: tuple[float, float]) -> Iterator[Alarm]:
    """Yield an alarm for a component whose mean has come close to an end of its range."""
    low, high = min(values), max(values)
    if low == high:
        return
    first, last = ((each - low) / (high - low) for each in means)
    for end, before, after in ((high, first, last), (low, 1 - first, 1 - last)):
        if after >= 0.98 and before < 0.9:
            yield Alarm(
                f"{name} saturated",
                f"the mean changed from {means[0]:.3g} to {means[1]:.3g}, and the range ends at "
                f"{end:g}: the component gives hardly any training signal",
            )


def mean_of(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return mean(present) if present else None
