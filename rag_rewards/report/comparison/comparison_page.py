"""The page that compares files of scored rows."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import msgspec

from rag_rewards import __version__
from rag_rewards.errors import UsageError, shorten
from rag_rewards.groups import group_by_key
from rag_rewards.loading import RecipeSource
from rag_rewards.metrics.comparison import Comparison, compare
from rag_rewards.metrics.intervals import Resampling, summarize
from rag_rewards.metrics.measurement import MeasuredRun
from rag_rewards.metrics.scored_values import ScoreValue
from rag_rewards.report.agreement import LabelOptions, agreement_notes, file_agreement
from rag_rewards.report.comparison.changes import Change, largest_changes, outcomes
from rag_rewards.report.comparison.configuration import differing_settings, notes_of, recipes_of
from rag_rewards.report.comparison.pairing import common_unit, joined, question_names, row_names
from rag_rewards.report.comparison.values import (
    by_question,
    measured_values,
    short_name,
    value_names,
    value_of,
)
from rag_rewards.report.facts import facts_of
from rag_rewards.report.page import html_page, write_page
from rag_rewards.report.report_page import TEXT_BYTES, ReportSummary, explanation_block
from rag_rewards.report.rows import Configurations, RowFault, RowFile, advantages, read_scored
from rag_rewards.report.statistics import Statistics, distribution, statistics
from rag_rewards.rows import ScoredRow
from rag_rewards.scorer import Scorer

LISTED = 100
"""Changed rows that the page lists for each pair of files."""
RESAMPLING = Resampling(1000)


@dataclass
class Run:
    """A file of scored rows with its measurements and statistics. `names` identify its rows."""

    name: str
    file: RowFile
    names: list[str]
    measured: MeasuredRun
    numbers: Statistics
    questions: list[str]
    advantages: list[float | None]
    configurations: Configurations = field(default_factory=Configurations)

    @property
    def rows(self) -> list[ScoredRow]:
        return self.file.rows

    @property
    def signatures(self) -> list[str]:
        """The distinct signatures of the rows, the most frequent one first."""
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row.signature or ""] = counts.get(row.signature or "", 0) + 1
        return sorted(counts, key=lambda text: -counts[text]) or [""]


def write_comparison(
    sources: Sequence[str],
    output: str,
    recipe: RecipeSource | None = None,
    title: str | None = None,
    columns: str | None = None,
    label: LabelOptions | None = None,
) -> ReportSummary:
    """Read two or more files of scored rows and write a page that compares them with the first.

    With a recipe, the rows are scored first. With a column of labels, the page contains the
    agreement with them. Raises UsageError when the rows of a file have no rewards and no recipe is
    given.
    """
    if sources.count("-") > 1:
        raise UsageError("standard input (-) is given twice, and it can be read only once")
    scorer = None if recipe is None else Scorer.load(recipe)
    files = [
        read_scored(source, scorer, columns, label.label if label else None) for source in sources
    ]
    names = file_names(sources)
    metrics = value_names([file.rows for file in files])
    runs = runs_of(files, names, metrics)
    title = title or f"{', '.join(names[:-1])} and {names[-1]}"
    data, packed = contents(runs, metrics, title)
    if label is not None:
        agreements = [file_agreement(file, label, metrics) for file in files]
        data["agreement"] = [each.values for each in agreements]
        for name, each in zip(names, agreements, strict=True):
            data["notes"] += agreement_notes(name, each.errors)
    html = html_page(f"{title} – rag-rewards", ("charts.js", "compare.js"), data, packed)
    write_page(output, html)
    faults = [
        RowFault(f"{name}: {fault.row}", fault.message)
        for name, file in zip(names, files, strict=True)
        for fault in file.faults
    ]
    rows = sum(len(file.rows) for file in files)
    return ReportSummary(rows, len(html.encode()), data["notes"], faults)


def file_names(sources: Sequence[str]) -> list[str]:
    """Return the shortest ends of the paths that differ.

    >>> file_names(["runs/a/scored.jsonl", "runs/b/scored.jsonl"])
    ['a/scored.jsonl', 'b/scored.jsonl']
    """
    paths = [
        PurePath("standard input" if each == "-" else os.path.normpath(each)) for each in sources
    ]
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(PurePath(*path.parts[-length:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{i}: {name}" for i, name in enumerate(names, start=1)]


def runs_of(
    files: Sequence[RowFile], names: Sequence[str], metrics: Sequence[ScoreValue]
) -> list[Run]:
    """Return the files with the measurements of their values."""
    runs = []
    names_of_rows = row_names([file.rows for file in files])
    for file, name, of_rows in zip(files, names, names_of_rows, strict=True):
        rows, configurations = file.rows, Configurations()
        groups = group_by_key(rows)
        facts = [facts_of(row, configurations.of(row)) for row in rows]
        runs.append(
            Run(
                name=name,
                file=file,
                names=of_rows,
                measured=measured_values(name, rows, metrics, of_rows),
                numbers=statistics(rows, facts, groups),
                questions=question_names(rows),
                advantages=advantages(rows, groups),
                configurations=configurations,
            )
        )
    return runs


def contents(
    runs: Sequence[Run], metrics: Sequence[ScoreValue], title: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the data of the page, and the compressed texts of changed rows."""
    signatures = [run.signatures[0] for run in runs]
    base, *others = runs
    texts = _Texts()
    comparisons = [_comparison(base, other, metrics, texts) for other in others]
    reports = [summarize(metrics, run.measured.measurements, RESAMPLING) for run in runs]
    data = {
        "title": title,
        "version": __version__,
        "runs": [_description(run) for run in runs],
        "notes": [*notes_of([run.name for run in runs], signatures), *_notes(runs, comparisons)],
        "settings": differing_settings(signatures),
        "values": [
            {
                "name": short_name(metric),
                "runs": [
                    {"n": by_run[i].units, **msgspec.to_builtins(by_run[i].values[metric.field])}
                    for by_run in reports
                ],
            }
            for i, metric in enumerate(metrics)
        ],
        "comparisons": comparisons,
        "distributions": [_distribution(metric, runs) for metric in metrics],
        "rates": _rates(runs),
        "training": list(_training(runs)),
    }
    return data, texts.packed


def _description(run: Run) -> dict[str, Any]:
    signatures = run.signatures
    return {
        "name": run.name,
        "rows": len(run.rows),
        "groups": sum(run.numbers.sizes.values()),
        "scored": run.numbers.scored,
        "failed": len(run.file.faults),
        "recipe": recipes_of(signatures[:1])[0],
        "signature": signatures[0],
        "signatures": len(signatures),
    }


def _notes(runs: Sequence[Run], comparisons: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Explain which rows are not compared, and what the statistics of each file note."""
    for comparison in comparisons:
        unit, rows = comparison["unit"], comparison["rows"]
        names = f"{comparison['other']} and {comparison['base']}"
        if not unit:
            yield f"{names} have no row and no question in common: their means are not paired"
        elif unit == "question":
            yield (
                f"{names} have no row with the same id and question: their differences are those "
                "of their common questions"
            )
        elif rows.only_base or rows.only_other or rows.twice:
            yield (
                f"{rows.shared:,} rows are in both {names}; differences do not contain "
                f"{rows.only_base:,} and {rows.only_other:,} rows of only one file, and "
                f"{rows.twice:,} rows with a repeated id"
            )
    for run in runs:
        if run.file.faults:
            first = run.file.faults[0]
            yield (
                f"{run.name}: {len(run.file.faults):,} rows in error are left out, the first: "
                f"{first.row}: {shorten(first.message, 160)}"
            )
        yield from (f"{run.name}: {note}" for note in run.numbers.notes)


# --- two files -----------------------------------------------------------------------------------


def _comparison(
    base: Run, other: Run, metrics: Sequence[ScoreValue], texts: _Texts
) -> dict[str, Any]:
    unit = common_unit(base.names, other.names, base.questions, other.questions)
    positions = joined(base.names, other.names)
    pairs = [(base.rows[i], other.rows[j]) for i, j in positions]
    recipes = recipes_of([base.signatures[0], other.signatures[0]])
    changes = largest_changes(
        base.rows, other.rows, positions, correct_first=recipes[0] != recipes[1]
    )
    result = _differences(base, other, metrics, unit)
    return {
        "base": base.name,
        "other": other.name,
        "unit": unit,
        "same_recipe": recipes[0] == recipes[1],
        "rows": result.rows,
        "differences": {
            each.name.removeprefix("components."): msgspec.to_builtins(each)
            for each in result.differences
        },
        "outcomes": [outcomes(pairs, metric) for metric in metrics if pairs],
        "changed": len(changes),
        "changes": [
            _changed_row(base, other, change, metrics, texts) for change in changes[:LISTED]
        ],
    }


def _differences(base: Run, other: Run, metrics: Sequence[ScoreValue], unit: str) -> Comparison:
    """Return the differences of the means with paired intervals, over rows or questions."""
    runs = base.measured, other.measured
    if unit == "question":
        runs = by_question(runs[0], base.questions), by_question(runs[1], other.questions)
    result = compare(*runs, metrics, range(len(metrics)), RESAMPLING)
    if unit == "question":
        result.rows = compare(base.measured, other.measured, [], [], RESAMPLING).rows
    return result


def _changed_row(
    base: Run, other: Run, change: Change, metrics: Sequence[ScoreValue], texts: _Texts
) -> dict[str, Any]:
    first, second = base.rows[change.base], other.rows[change.other]
    values = {
        short_name(metric): [_round(value_of(row, metric)) for row in (first, second)]
        for metric in metrics
    }
    return {
        "id": shorten(str(first.id), 160),
        "question": shorten(first.question or "", 160),
        "step": first.step,
        "change": _round(change.reward),
        "correct": _round(change.correct),
        "values": {name: pair for name, pair in values.items() if pair != [None, None]},
        "text": texts.add(base, other, change),
    }


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


class _Texts:
    """The responses of changed rows, compressed, up to TEXT_BYTES."""

    def __init__(self) -> None:
        self.packed: dict[str, Any] = {}
        self._size = 0

    def add(self, base: Run, other: Run, change: Change) -> str | None:
        """Add both responses of a row. Return the name of their block, or None if it is full."""
        if self._size > TEXT_BYTES:
            return None
        rows = [base.rows[change.base], other.rows[change.other]]
        zscores = [base.advantages[change.base], other.advantages[change.other]]
        block = explanation_block(rows, (0, 1), zscores, base.configurations)
        self._size += len(zlib.compress(msgspec.json.encode(block), 6))
        if self._size > TEXT_BYTES:
            return None
        name = f"change-{len(self.packed)}"
        self.packed[name] = block
        return name


# --- all files -----------------------------------------------------------------------------------


def _distribution(metric: ScoreValue, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the frequencies of a value in each file, with common bins."""
    columns = [[value_of(row, metric) for row in run.rows] for run in runs]
    every = distribution(short_name(metric), [value for column in columns for value in column])
    return {
        "name": every.name,
        "edges": every.edges,
        "discrete": every.discrete,
        "low": every.low,
        "high": every.high,
        "counts": [every.counts_of(column) for column in columns],
    }


def _rates(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the shares and means of responses and turns of each file."""
    columns = []
    for run in runs:
        numbers = run.numbers
        turns = numbers.turns.rates if numbers.turns else {}
        columns.append(numbers.rates | turns | {"groups without signal": numbers.signals[0].dead})
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [{"name": name, "runs": [column.get(name) for column in columns]} for name in names]
    return [row for row in rows if any(value is not None for value in row["runs"])]


def _training(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Yield each quantity of the training steps, with its values for each file."""
    names = dict.fromkeys(
        name for run in runs for step in run.numbers.steps for name in step.values
    )
    for name in names:
        lines = [[[step.step, step.values.get(name)] for step in run.numbers.steps] for run in runs]
        yield {"name": name, "runs": lines}
