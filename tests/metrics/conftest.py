"""Fixtures that measure rows as the command line does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from rag_rewards.metrics import metric_of
from rag_rewards.metrics.intervals import MetricReport, Resampling, summarize
from rag_rewards.metrics.measurement import MeasuredRun, measure
from rag_rewards.rows import Chunk

Rows = Iterable[dict[str, Any]]


def read(rows: Rows, *metrics: str, by: tuple[str, ...] = (), name: str = "run") -> MeasuredRun:
    lines = [json.dumps(row).encode() for row in rows]
    half = (len(lines) + 1) // 2  # two chunks give the same result as one
    numbers = list(range(1, len(lines) + 1))
    chunks = [
        Chunk(lines=lines[at : at + half], numbers=numbers[at : at + half])
        for at in range(0, len(lines), half or 1)
    ]
    return measure(name, chunks, [metric_of(text) for text in metrics], by=by)


@pytest.fixture(scope="session")
def reported() -> Callable[..., MetricReport]:
    """Return a function from a metric and rows to the report."""

    def report(metric: str, rows: Rows, resamples: int = 20) -> MetricReport:
        run = read(rows, metric)
        [result] = summarize([metric_of(metric)], run.measurements, Resampling(resamples))
        result.left_out = run.left_out[0]
        return result

    return report


@pytest.fixture(scope="session")
def values(reported: Callable[..., MetricReport]) -> Callable[..., dict[str, float | None]]:
    """Return a function from a metric and rows to the values. No row may be excluded."""

    def of(metric: str, rows: Rows) -> dict[str, float | None]:
        report = reported(metric, rows)
        assert not report.left_out, report.left_out
        return {name: value.value for name, value in report.values.items()}

    return of


@pytest.fixture(scope="session")
def run_of() -> Callable[..., MeasuredRun]:
    return read
