"""The numbers and settings of an evaluated file, for a tracker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from rag_rewards.metrics.evaluation import Evaluation, RunReport
from rag_rewards.metrics.intervals import MetricReport
from rag_rewards.tracking.tracker import Tracker

Numbers = Iterator[tuple[str, float | None]]
"""Numbers by name. No name is the folder of another one, which the files of MLflow require."""


def track_evaluation(tracker: Tracker, evaluation: Evaluation, i: int) -> None:
    """Record the metrics of a file, with their intervals.

    A further file also has its differences from the first one. With `--by step`, each step has its
    metrics.
    """
    run = evaluation.runs[i]
    settings = {"command": "evaluate", "input": run.name, "signature": evaluation.signature}
    if i:
        settings["compared_with"] = evaluation.runs[0].name
    tracker.log_settings(settings)
    for label, reports in run.by.get("step", {}).items():
        with contextlib.suppress(ValueError):  # rows without a step
            tracker.log_step(int(label), _known(_values(reports)))
    summary = _known(_summary(run))
    if i and evaluation.comparisons:
        summary |= _known(_differences(evaluation, i - 1))
    tracker.log_summary(summary)


def _summary(run: RunReport) -> Numbers:
    yield from {
        "rows": run.rows,
        "rows_in_error": run.errors,
        "rows_unscored": run.unscored,
        "rows_truncated": run.truncated,
    }.items()
    yield from _values(run.metrics, intervals=True)
    for report in run.metrics:
        if report.left_out:
            yield f"{report.metric}.left_out", sum(error.count for error in report.left_out)


def _values(reports: list[MetricReport], *, intervals: bool = False) -> Numbers:
    for report in reports:
        for at, (name, value) in enumerate(report.values.items()):
            key = f"{report.metric}.{name}" if at else report.metric
            if intervals:
                yield from _with_interval(key, msgspec.to_builtins(value))
            else:
                yield key, value.value


def _differences(evaluation: Evaluation, i: int) -> Numbers:
    for each in evaluation.comparisons[i].differences:
        main = each.metric.partition("(")[0] == each.name
        key = each.metric if main else f"{each.metric}.{each.name}"
        ends = {"value": each.difference, "low": each.low, "high": each.high}
        yield from _with_interval(f"difference/{key}", ends)


def _with_interval(key: str, value: dict[str, float | None]) -> Numbers:
    yield key, value["value"]
    yield f"{key}_low", value.get("low")
    yield f"{key}_high", value.get("high")


def _known(numbers: Numbers) -> dict[str, float]:
    return {name: value for name, value in numbers if value is not None}
