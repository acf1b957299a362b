"""Numbers of a report: distributions, groups, rates, steps, and what has drifted over training.

Everything is computed from scored rows alone. What cannot be shown is said in words: rewards that
are all equal, groups of one, rows without a score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

import msgspec

from rag_rewards.groups import positions_by_key
from rag_rewards.rows import ScoredRow
from rag_rewards.text.citations import compiled, markers
from rag_rewards.text.refusal import ABSTENTIONS
from rag_rewards.training.advantages import mean_std

BINS = 24
MOST_STEPS = 120
"""Points of a line: more steps than this are put together."""
_TAG = re.compile(r"</?[A-Za-z]\w{0,20}>")


class Distribution(msgspec.Struct, frozen=True):
    """How often which value: counts between edges, or of each value where there are few."""

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
    said: str = ""


class Signal(msgspec.Struct, frozen=True):
    """What GRPO can learn from a reward or a component: spread within groups of two and more."""

    name: str
    dead: float | None
    spread: float | None


class Step(msgspec.Struct, frozen=True):
    """Means of the rollouts of a step, or of some neighbouring ones."""

    step: int
    n: int
    values: dict[str, float | None]


class Alarm(msgspec.Struct, frozen=True):
    """Something that has drifted from the first quarter of the steps to the last."""

    what: str
    said: str


class Facts(msgspec.Struct, frozen=True):
    """What is known of one rollout besides its score."""

    words: int
    cites: int
    tags: int
    refused: bool
    abstained: bool
    cut: bool


class Statistics(msgspec.Struct, kw_only=True):
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
    steps: list[Step]
    alarms: list[Alarm]
    notes: list[str]


def facts_of(row: ScoredRow) -> Facts:
    """What a response looks like.

    Refused and abstained are what the recipe found, or the usual phrases where it looked for none.
    """
    text = row.parsed.text
    details = row.details or {}
    truth = details.get("truth")
    refused = bool(details.get("refused")) and truth is None
    abstained = truth == "uncertain"
    if not refused and not abstained and truth is None and "refused" not in details:
        visible = row.parsed.visible.lower().replace("’", "'")
        abstained = any(phrase.lower() in visible for phrase in ABSTENTIONS)
    return Facts(
        words=len(text.split()),
        cites=sum(len(m.labels) for m in markers(text, _MARKER)),
        tags=len(_TAG.findall(text)),
        refused=refused,
        abstained=abstained,
        cut=row.finish_reason == "length",
    )


_MARKER = compiled()


def statistics(
    rows: Sequence[ScoredRow], known: Sequence[Facts], groups: Sequence[Sequence[int]]
) -> Statistics:
    """All that a report draws."""
    names = list(dict.fromkeys(name for row in rows for name in row.components or ()))
    columns: dict[str, list[float | None]] = {"reward": [row.reward for row in rows]}
    for name in names:
        columns[name] = [(row.components or {}).get(name) for row in rows]
    if any(row.correct is not None for row in rows) and "correct" not in columns:
        columns["correct"] = [row.correct for row in rows]
    steps = _steps(rows, known, columns, groups)
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
        rates=_rates(rows, known),
        words=distribution("words", [float(each.words) for each in known]),
        steps=steps,
        alarms=alarms(steps, columns),
        notes=_notes(rows, columns, groups),
    )


def distribution(name: str, values: Sequence[float | None]) -> Distribution:
    """Counts of the values; a value each where there are at most twelve different ones.

    >>> found = distribution("accuracy", [0.0, 1.0, 1.0, None])
    >>> found.edges, found.counts, found.missing
    ([0.0, 1.0], [1, 2], 1)
    """
    there = [value for value in values if value is not None]
    missing = len(values) - len(there)
    if not there:
        said = "no rollout has a value"
        return Distribution(name, 0, missing, None, None, None, None, [], [], True, said)
    mean, std = mean_std(there)
    low, high = min(there), max(there)
    different = sorted(set(there))
    said = f"always {low:g}" if low == high else ""
    if len(different) <= 12:
        counts = [0] * len(different)
        place = {value: i for i, value in enumerate(different)}
        for value in there:
            counts[place[value]] += 1
        edges, discrete = different, True
    else:
        width = (high - low) / BINS
        edges = [low + i * width for i in range(BINS + 1)]
        counts, discrete = [0] * BINS, False
        for value in there:
            counts[min(int((value - low) / width) if width else 0, BINS - 1)] += 1
    return Distribution(
        name, len(there), missing, mean, std, low, high, edges, counts, discrete, said
    )


def correlation(first: Sequence[float | None], second: Sequence[float | None]) -> float | None:
    """Pearson's, over the rollouts that have both; None where one of them never varies.

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
    covariance = fmean((a - mx) * (b - my) for a, b in pairs)
    return round(max(-1.0, min(1.0, covariance / (sx * sy))), 6)


def _grouped(values: Sequence[float | None], groups: Iterable[Sequence[int]]) -> list[list[float]]:
    """Values of the groups that have at least two."""
    found = [[v for i in group if (v := values[i]) is not None] for group in groups]
    return [group for group in found if len(group) > 1]


def _spreads(values: Sequence[float | None], groups: Sequence[Sequence[int]]) -> list[float | None]:
    return [mean_std(group)[1] for group in _grouped(values, groups)]


def _signal(name: str, values: Sequence[float | None], groups: Sequence[Sequence[int]]) -> Signal:
    known = _grouped(values, groups)
    if not known:
        return Signal(name, None, None)
    dead = sum(max(group) == min(group) for group in known) / len(known)
    return Signal(name, dead, fmean(mean_std(group)[1] for group in known))


def _sizes(groups: Sequence[Sequence[int]]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for group in groups:
        sizes[len(group)] = sizes.get(len(group), 0) + 1
    return dict(sorted(sizes.items()))


def _rates(rows: Sequence[ScoredRow], known: Sequence[Facts]) -> dict[str, float | None]:
    """Shares of the rollouts; None where no row says."""
    n = len(rows)
    if not n:
        return {}
    shares: dict[str, float | None] = {
        "abstain": sum(each.abstained for each in known) / n,
        "refuse": sum(each.refused for each in known) / n,
        "cite": sum(each.cites > 0 for each in known) / n,
        "citations each": fmean(each.cites for each in known),
        "words each": fmean(each.words for each in known),
        "empty": sum(not each.words for each in known) / n,
        "cut at the limit": sum(each.cut for each in known) / n,
    }
    formats = [v for row in rows if (v := (row.components or {}).get("format")) is not None]
    shares["in format"] = fmean(value >= 1 for value in formats) if formats else None
    return shares


def _notes(
    rows: Sequence[ScoredRow],
    columns: dict[str, list[float | None]],
    groups: Sequence[Sequence[int]],
) -> list[str]:
    """What makes a picture empty or misleading, in words."""
    if not rows:
        return ["the file has no row that can be shown"]
    notes = []
    rewards = columns["reward"]
    there = [value for value in rewards if value is not None]
    if not there:
        notes.append("no rollout has a reward: all that is drawn are the responses")
    elif len(there) < len(rewards):
        notes.append(f"{len(rewards) - len(there):,} rollouts are not scored: they are left out")
    if there and min(there) == max(there) and len(there) > 1:
        notes.append(f"every reward is {there[0]:g}: there is nothing to learn from")
    elif there:
        notes += [
            f"{name} is always {values[0]:g}: it teaches nothing"
            for name, values in columns.items()
            if len(set(values)) == 1 and values[0] is not None and len(values) > 1
        ]
    alone = sum(len(group) == 1 for group in groups)
    if alone == len(groups):
        notes.append("every group is of one rollout: spread within groups is not defined")
    elif alone:
        notes.append(f"{alone:,} of {len(groups):,} groups are of one rollout: they have no spread")
    seen: dict[str, int] = {}
    for row in rows:
        seen[row.signature or ""] = seen.get(row.signature or "", 0) + 1
    if len(seen) > 1:
        notes.append(f"the rows were scored in {len(seen)} ways: their rewards do not compare")
    repeated = len(rows) - len({str(row.id) for row in rows})
    if repeated:
        notes.append(f"{repeated:,} rows repeat an id")
    return notes


# --- over training -----------------------------------------------------------------------------


def _steps(
    rows: Sequence[ScoredRow],
    known: Sequence[Facts],
    columns: dict[str, list[float | None]],
    groups: Sequence[Sequence[int]],
) -> list[Step]:
    """A point for each training step, at most so many; none where rows carry no step."""
    members = positions_by_key(row.step for row in rows)
    order = sorted(step for step in members if step is not None)
    if len(order) < 2:
        return []
    dead = _dead_by_row(columns["reward"], groups)
    size = math.ceil(len(order) / MOST_STEPS)
    points = []
    for at in range(0, len(order), size):
        inside = [i for step in order[at : at + size] for i in members[step]]
        looks: dict[str, Callable[[Facts], float]] = {
            "words": lambda each: float(each.words),
            "tags": lambda each: float(each.tags),
            "citations": lambda each: float(each.cites),
            "abstain or refuse": lambda each: float(each.abstained or each.refused),
            "cut at the limit": lambda each: float(each.cut),
        }
        values = {name: _mean(column[i] for i in inside) for name, column in columns.items()}
        values |= {name: fmean(look(known[i]) for i in inside) for name, look in looks.items()}
        values["groups without signal"] = _mean(dead[i] for i in inside)
        points.append(Step(order[at], len(inside), values))
    return points


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return fmean(there) if there else None


def _dead_by_row(
    rewards: Sequence[float | None], groups: Sequence[Sequence[int]]
) -> list[float | None]:
    out: list[float | None] = [None] * len(rewards)
    for group in groups:
        values = [v for i in group if (v := rewards[i]) is not None]
        if len(values) > 1:
            for i in group:
                out[i] = float(max(values) == min(values))
    return out


def alarms(steps: Sequence[Step], columns: dict[str, Any]) -> list[Alarm]:
    """What the last quarter of the steps does that the first did not.

    Length or tags by half or more, abstaining, cutting and dead groups by 0.2 or more, and a
    component that has come to one value: 98% of the way to the end of its range.
    """
    if len(steps) < 4:
        return []
    quarter = max(len(steps) // 4, 1)
    found: list[Alarm] = []

    def means(name: str) -> tuple[float, float] | None:
        first = _mean(step.values.get(name) for step in steps[:quarter])
        last = _mean(step.values.get(name) for step in steps[-quarter:])
        return None if first is None or last is None else (first, last)

    for name, what in (("words", "length"), ("tags", "tags"), ("citations", "citations")):
        if (pair := means(name)) and max(pair) >= 1 and _far(*pair):
            first, last = pair
            found.append(Alarm(what, f"{name} a response: {first:.3g} at first, {last:.3g} now"))
    for name in ("abstain or refuse", "cut at the limit", "groups without signal"):
        if (pair := means(name)) and pair[1] - pair[0] >= 0.2:
            found.append(Alarm(name, f"{name}: {pair[0]:.0%} at first, {pair[1]:.0%} now"))
    for name, values in columns.items():
        if name in ("reward", "correct"):
            continue
        there = [value for value in values if value is not None]
        if not there or min(there) == max(there) or (pair := means(name)) is None:
            continue
        low, high = min(there), max(there)
        first, last = ((value - low) / (high - low) for value in pair)
        for end, share in ((high, last), (low, 1 - last)):
            before = first if end == high else 1 - first
            if share >= 0.98 and before < 0.9:
                found.append(
                    Alarm(
                        f"{name} saturated",
                        f"{name} has come to {end:g} (mean {pair[0]:.3g} at first, "
                        f"{pair[1]:.3g} now): it teaches nothing any more",
                    )
                )
    if (pair := means("reward")) and pair[1] < pair[0]:
        spread = mean_std([v for v in columns["reward"] if v is not None])[1]
        if pair[0] - pair[1] > 0.5 * spread > 0:
            found.append(Alarm("reward", f"reward: {pair[0]:.3g} at first, {pair[1]:.3g} now"))
    return found


def _far(first: float, last: float) -> bool:
    small, large = sorted((first, last))
    return large >= 1.5 * small
