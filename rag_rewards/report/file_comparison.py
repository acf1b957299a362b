"""The comparison of two files of scored rows: differences of means, and the rows that changed.

Rows with the same id and question are compared with each other. A row without an id is identified
by its line. Rows with the same id and different questions are different rows. Where no row is in
both files, the means of their common questions are compared.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Literal

import msgspec

from rag_rewards.groups import positions_by_key
from rag_rewards.metrics.comparison import Comparison, compare
from rag_rewards.metrics.intervals import Resampling
from rag_rewards.metrics.measurement import MeasuredRun, Measurements
from rag_rewards.metrics.scored_values import ScoreValue
from rag_rewards.rows import ScoredRow
from rag_rewards.text.normalize import squad

RESAMPLING = Resampling(1000)
EQUAL = 1e-9
"""Two values whose difference is at most this are equal."""
_SEPARATOR = "\0"
Unit = Literal["row", "question", ""]
"""What two files have in common: rows, only questions, or nothing."""


class Outcomes(msgspec.Struct, frozen=True):
    """The number of common rows whose value is higher, equal or lower in the second file."""

    name: str
    higher: int
    equal: int
    lower: int


class Change(msgspec.Struct, frozen=True):
    """A row whose reward or `correct` differs between two files, with its positions in both."""

    base: int
    other: int
    reward: float | None
    correct: float | None


class FileComparison(msgspec.Struct, frozen=True):
    """The comparison of two files.

    result   differences of the means with paired intervals, over `unit`
    changes  the rows that changed, the largest change first
    """

    unit: Unit
    result: Comparison
    outcomes: list[Outcomes]
    changes: list[Change]


# --- values --------------------------------------------------------------------------------------


def value_names(files: Sequence[Sequence[ScoredRow]]) -> list[ScoreValue]:
    """Return the values that rows of the files have, in order of first appearance."""
    names = dict.fromkeys(name for rows in files for row in rows for name in row.components or ())
    has_correct = any(row.correct is not None for rows in files for row in rows)
    fields = ["reward", *["correct"] * has_correct]
    fields += [f"components.{name}" for name in names if name not in fields]
    return list(map(ScoreValue, fields))


def value_of(row: ScoredRow, metric: ScoreValue) -> float | None:
    """Return a value of a row, or None if the row does not have it."""
    if metric.field in ("reward", "correct"):
        value: float | None = getattr(row, metric.field)
        return value
    return (row.components or {}).get(short_name(metric))


def short_name(metric: ScoreValue) -> str:
    """Return the name of a value without the prefix of components."""
    return metric.field.removeprefix("components.")


def measured_values(
    name: str, rows: Sequence[ScoredRow], metrics: Sequence[ScoreValue], names: Sequence[str]
) -> MeasuredRun:
    """Return the values of rows as measurements. `names` identify the rows.

    Rows of one prompt are resampled together.
    """
    run = MeasuredRun(name, rows=len(rows), ids=list(names), keys=[row.key for row in rows])
    for metric in metrics:
        values = {i: v for i, row in enumerate(rows) if (v := value_of(row, metric)) is not None}
        columns = {"right": array("d", values.values()), "rows": array("d", [1.0]) * len(values)}
        run.measurements.append(
            Measurements(list(values), [run.prompts[i] for i in values], columns)
        )
        run.left_out.append([])
    return run


def _by_question(run: MeasuredRun, names: Sequence[str]) -> MeasuredRun:
    """Return a run whose units are questions, with the sums of their rows.

    `names` are the questions of the rows.
    """
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    questions = MeasuredRun(run.name, rows=len(place), ids=list(place), keys=list(place))
    for measured in run.measurements:
        places = [place[names[i]] for i in measured.units]
        _, columns = Measurements(measured.units, places, measured.columns).by_prompt()
        units = list(dict.fromkeys(places))
        questions.measurements.append(Measurements(units, units, columns))
        questions.left_out.append([])
    return questions


# --- pairs of rows -------------------------------------------------------------------------------


def row_names(files: Sequence[Sequence[ScoredRow]]) -> list[list[str]]:
    """Return what identifies each row of each file.

    These are the id and the question, and also the training step if the rows of a file have several
    steps. The question is ignored if a row has none.
    """
    questions = all(row.question for file in files for row in file)
    steps = any(len({row.step for row in file}) > 1 for file in files)

    def name(row: ScoredRow) -> str:
        parts = [str(row.id)]
        parts += [squad(row.question or "")] if questions else []
        parts += [str(row.step)] if steps else []
        return _SEPARATOR.join(parts)

    return [[name(row) for row in file] for file in files]


def _question_names(rows: Sequence[ScoredRow]) -> list[str]:
    """Return the question of each row: its text, else the group, else the row itself."""
    return [
        squad(row.question) if row.question else str(row.key or f"{_SEPARATOR}{row.id}")
        for row in rows
    ]


def joined(base: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of the rows that are in both files. Repeated names are left out.

    >>> joined(["a", "b", "b"], ["b", "a"])
    [(0, 1)]
    """
    places = positions_by_key(other)
    return [
        (own[0], places[name][0])
        for name, own in positions_by_key(base).items()
        if len(own) == len(places.get(name, ())) == 1
    ]


# --- the comparison ------------------------------------------------------------------------------


def compare_files(
    base: Sequence[ScoredRow],
    other: Sequence[ScoredRow],
    runs: tuple[MeasuredRun, MeasuredRun],
    metrics: Sequence[ScoreValue],
    *,
    correct_first: bool,
) -> FileComparison:
    """Compare two files, whose values are measured as `runs`.

    With `correct_first`, the changes of `correct` determine the order of the changed rows, for
    rewards of different recipes.
    """
    result = compare(*runs, metrics, range(len(metrics)), RESAMPLING)
    unit: Unit = "row" if result.rows.shared else ""
    if not unit:
        questions = _question_names(base), _question_names(other)
        if set(questions[0]) & set(questions[1]):
            unit, rows = "question", result.rows
            first, second = map(_by_question, runs, questions)
            result = compare(first, second, metrics, range(len(metrics)), RESAMPLING)
            result.rows = rows
    positions = joined(runs[0].ids, runs[1].ids)
    pairs = [(base[i], other[j]) for i, j in positions]
    return FileComparison(
        unit,
        result,
        [_outcomes(pairs, metric) for metric in metrics if pairs],
        largest_changes(base, other, positions, correct_first=correct_first),
    )


def _outcomes(pairs: Sequence[tuple[ScoredRow, ScoredRow]], metric: ScoreValue) -> Outcomes:
    """Count the rows whose value is higher, equal or lower in the second file.

    Rows without the value in one of the files are left out.
    """
    changes = [_minus(value_of(other, metric), value_of(base, metric)) for base, other in pairs]
    present = [change for change in changes if change is not None]
    higher = sum(change > EQUAL for change in present)
    lower = sum(change < -EQUAL for change in present)
    return Outcomes(short_name(metric), higher, len(present) - higher - lower, lower)


def largest_changes(
    base: Sequence[ScoredRow],
    other: Sequence[ScoredRow],
    positions: Sequence[tuple[int, int]],
    *,
    correct_first: bool,
) -> list[Change]:
    """Return the rows whose reward or `correct` differs, the largest change first.

    The order is that of the change of the reward. With `correct_first`, it is that of the change of
    `correct`, and then that of the reward.
    """
    changes = []
    for i, j in positions:
        reward = _minus(other[j].reward, base[i].reward)
        correct = _minus(other[j].correct, base[i].correct)
        if _size(reward) > EQUAL or _size(correct) > EQUAL:
            changes.append(Change(i, j, reward, correct))

    def order(change: Change) -> tuple[float, ...]:
        sizes = [-_size(change.reward), -_size(change.correct)]
        return tuple(reversed(sizes) if correct_first else sizes)

    return sorted(changes, key=order)


def _minus(other: float | None, base: float | None) -> float | None:
    return None if other is None or base is None else other - base


def _size(change: float | None) -> float:
    return 0.0 if change is None or math.isnan(change) else abs(change)
