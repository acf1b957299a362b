"""The values of scored rows as metrics: the reward, `correct` and the components."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from rag_rewards.metrics.measurement import MeasuredRun, Measurements
from rag_rewards.metrics.scored_values import ScoreValue
from rag_rewards.rows import ScoredRow


def value_names(files: Sequence[Sequence[ScoredRow]]) -> list[ScoreValue]:
    """Return the values that rows of the files have, in order of first appearance."""
    names = {"reward": ScoreValue("reward")}
    if any(row.correct is not None for rows in files for row in rows):
        names["correct"] = ScoreValue("correct")
    for rows in files:
        for row in rows:
            for name in row.components or ():
                if name not in names:
                    names[name] = ScoreValue(f"components.{name}")
    return list(names.values())


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
    name: str,
    rows: Sequence[ScoredRow],
    metrics: Sequence[ScoreValue],
    names: Sequence[str] | None = None,
) -> MeasuredRun:
    """Return the values of rows as measurements. `names` identify the rows, by default their ids.

    Rows of one prompt are resampled together.
    """
    run = MeasuredRun(name, rows=len(rows), ids=list(names or (str(row.id) for row in rows)))
    run.keys = [row.key for row in rows]
    for metric in metrics:
        values = [value_of(row, metric) for row in rows]
        units = [i for i, value in enumerate(values) if value is not None]
        columns = {
            "right": array("d", (value for value in values if value is not None)),
            "rows": array("d", [1.0]) * len(units),
        }
        run.measurements.append(Measurements(units, [run.prompts[i] for i in units], columns))
        run.left_out.append([])
    return run


def by_question(run: MeasuredRun, names: Sequence[str]) -> MeasuredRun:
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
