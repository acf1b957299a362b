"""Evaluate files of rows: metrics with counts and confidence intervals, and compared files."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from rag_rewards.datasets.question_list import question_digest, questions_in
from rag_rewards.errors import UsageError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.files.output import check_output, write_whole
from rag_rewards.files.output_check import refuse_overwriting
from rag_rewards.files.sources import chunks, open_source
from rag_rewards.files.version import sha256
from rag_rewards.metrics.comparison import (
    Comparison,
    check_pairs,
    compare,
    evaluate_pairs,
)
from rag_rewards.metrics.intervals import RESAMPLES, MetricReport, Resampling, summarize
from rag_rewards.metrics.measurement import (
    MAX_LABELS,
    NO_LABEL,
    ErrorCount,
    Gather,
    MeasuredRun,
    Measurements,
    MetricNeeds,
    measure,
)
from rag_rewards.metrics.metric import Metric
from rag_rewards.metrics.metric_names import metrics_of
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.rows import NOT_JSON, Line
from rag_rewards.signature import Signature

MIXED = "(mixed)"


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of `evaluate`: files of rows, metrics, and how to compute them."""

    sources: Sequence[str]
    metrics: Sequence[str]
    by: Sequence[str] = ()
    output: str | None = None
    resamples: int = RESAMPLES
    seed: int = 0
    models: ModelOptions = field(default_factory=ModelOptions)
    questions: str | None = None
    """File of questions. Rows of other questions are left out."""
    columns: str | None = None
    """Columns of fields that have another name, as in `ColumnMap`."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise UsageError("no file of rows is given: give at least one")
        if self.sources.count("-") > 1:
            raise UsageError("standard input (-) is given twice, and it can be read only once")
        refuse_overwriting({"output": self.output}, self.sources)


class RunReport(msgspec.Struct, kw_only=True):
    """One file: its counts, its rows in error, and its metrics for all rows and by field."""

    name: str
    rows: int
    errors: int
    groups: int
    truncated: int
    unscored: int
    broken: list[ErrorCount]
    metrics: list[MetricReport]
    by: dict[str, dict[str, list[MetricReport]]] = {}
    decisions: dict[str, int] = {}
    """The counts of the decisions on answers that the rows state, see `rows.decisions`."""


class Evaluation(msgspec.Struct, kw_only=True):
    """The result of an evaluation."""

    signature: str
    runs: list[RunReport]
    pairs: list[MetricReport] = []
    comparisons: list[Comparison] = []
    model_usage: str = msgspec.field(default="", name="asked")
    """What the models computed, in a few words; empty without models."""

    @property
    def has_errors(self) -> bool:
        """Whether a row does not decode or lacks what a metric needs. Small groups do not count."""
        errors = [error for run in self.runs for error in run.broken]
        reports = [report for run in self.runs for report in run.metrics] + self.pairs
        errors += [error for report in reports for error in report.left_out]
        return any(error.unit == "row" for error in errors)


def evaluate(options: EvaluateOptions) -> Evaluation:
    """Compute the metrics of each file, and compare each further file with the first.

    Writes the result to `options.output`. Raises UsageError for an unknown metric, for a file
    without rows, and for a field that no row has.
    """
    check_output(options.output)
    metrics, fields = metrics_of(options.metrics)
    by = list(dict.fromkeys((*options.by, *fields)))
    resampling = Resampling(options.resamples, options.seed)
    check_pairs(metrics, len(options.sources))
    models = options.models.load()
    gatherer = Gatherer(models)
    has_models = models != Models()
    gather: Gather | None = None
    if has_models:
        gather = partial(gatherer.gather_sync, MetricNeeds(metrics))
    fingerprints = gatherer.fingerprints if has_models else {}
    signed = signature(metrics, by, resampling, fingerprints, options)
    with contextlib.ExitStack() as stack:
        stack.callback(_close_models, models)
        runs = [_read(source, metrics, by, gather, options) for source in options.sources]
        evaluation = Evaluation(
            signature=signed,
            pairs=evaluate_pairs(runs, metrics, resampling),
            runs=[_report(run, metrics, by, resampling) for run in runs],
            comparisons=_comparisons(runs, metrics, resampling),
            model_usage=str(gatherer.usage),
        )
        if options.output:
            write_whole(options.output, as_json(evaluation))
    return evaluation


def _close_models(models: Models) -> None:
    if models != Models():
        asyncio.run(models.close())


def signature(
    metrics: Sequence[Metric],
    by: Sequence[str],
    resampling: Resampling,
    models: dict[str, str],
    options: EvaluateOptions,
) -> str:
    """Return one line that identifies everything that affects the numbers."""
    settings: dict[str, Any] = {
        "metrics": list(map(repr, metrics)),
        "by": list(by),
        "resamples": resampling.resamples,
        "seed": resampling.seed,
    }
    if options.questions is not None:
        settings["questions"] = sha256(options.questions)
    if options.columns is not None:
        settings["columns"] = options.columns
    return str(Signature(recipe="evaluate", settings=settings, models=models))


def _read(
    source: str,
    metrics: Sequence[Metric],
    by: Sequence[str],
    gather: Gather | None,
    options: EvaluateOptions,
) -> MeasuredRun:
    name = "standard input" if source == "-" else source
    questions = options.questions
    with contextlib.closing(open_source(source, options.columns, growing=True)) as opened:
        lines = opened.lines
        if questions is not None:
            lines = _lines_of(questions_in(questions), lines)
        run = measure(name, chunks(lines), metrics, by=by, gather=gather)
    if not run.rows:
        of_questions = f" of the questions in {questions}" if questions else ""
        raise UsageError(f"{name} has no rows{of_questions}")
    return run


class _QuestionField(msgspec.Struct):
    question: str | None = None


_QUESTION = msgspec.json.Decoder(_QuestionField)


def _lines_of(questions: frozenset[bytes], lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the rows of these questions, and lines that do not decode, which are rows in error."""
    for number, line in lines:
        try:
            question = _QUESTION.decode(line).question
        except NOT_JSON:
            yield number, line
        else:
            if question and question_digest(question) in questions:
                yield number, line


def _report(
    run: MeasuredRun,
    metrics: Sequence[Metric],
    by: Sequence[str],
    resampling: Resampling,
) -> RunReport:
    single = _without_pairs(metrics)
    chosen = [metrics[i] for i in single]
    reports = summarize(chosen, [run.measurements[i] for i in single], resampling)
    for report, i in zip(reports, single, strict=True):
        report.left_out = run.left_out[i]
    by_field = {
        name: {
            label: summarize(chosen, [measured[i] for i in single], resampling)
            for label, measured in split(run, metrics, name).items()
        }
        for name in by
    }
    return RunReport(
        name=run.name,
        rows=run.rows,
        errors=run.rows - len(run.ids),
        groups=len(run.groups),
        truncated=run.truncated,
        unscored=run.unscored,
        broken=run.errors.counts(),
        metrics=reports,
        by=by_field,
        decisions=dict(run.decisions),
    )


def split(run: MeasuredRun, metrics: Sequence[Metric], field: str) -> dict[str, list[Measurements]]:
    """Return the measurements of a run for each value of a field, in the order of the values.

    A group belongs to a value if all its rows have it, otherwise to `(mixed)`. Without a row that
    could be read, there are no values. Raises UsageError if no row has the field, and if it has too
    many values.
    """
    labels = run.labels[field]
    if set(labels) == {NO_LABEL}:
        raise UsageError(f"{run.name}: no row has {field!r}: choose another field to split by")
    has_groups = any(metric.unit == "group" for metric in metrics)
    group_labels = _labels_of_groups(run, labels) if has_groups else []
    values = {*labels, *group_labels}
    if len(values) > MAX_LABELS:
        raise UsageError(
            f"{field!r} has {len(values):,} values: choose a field with at most {MAX_LABELS}"
        )
    subsets: dict[str, list[Measurements]] = {label: [] for label in sorted(values, key=_order)}
    for metric, measurements in zip(metrics, run.measurements, strict=True):
        own_labels = group_labels if metric.unit == "group" else labels
        members: dict[str, list[int]] = {label: [] for label in subsets}
        for i, unit in enumerate(measurements.units):
            members[own_labels[unit]].append(i)
        for label, chosen in members.items():
            subsets[label].append(measurements.subset(chosen))
    return subsets


def _labels_of_groups(run: MeasuredRun, labels: Sequence[str]) -> list[str]:
    group_labels: dict[str, str] = {}
    for key, label in zip(run.keys, labels, strict=True):
        if key is not None:
            group_labels[key] = label if group_labels.get(key, label) == label else MIXED
    return [group_labels[key] for key in run.groups]


def _order(label: str) -> tuple[int, float, str]:
    """A sort key: numbers by size, then texts, then `(mixed)` and `(none)`."""
    if label in (NO_LABEL, MIXED):
        return 2, 0.0, label
    try:
        number = float(label)
    except ValueError:
        return 1, 0.0, label
    return (0, number, label) if math.isfinite(number) else (1, 0.0, label)


def _comparisons(
    runs: Sequence[MeasuredRun], metrics: Sequence[Metric], resampling: Resampling
) -> list[Comparison]:
    """Compare each further file with the first."""
    single = _without_pairs(metrics)
    base, *others = runs
    return [compare(base, other, metrics, single, resampling) for other in others if single]


def _without_pairs(metrics: Sequence[Metric]) -> list[int]:
    """The positions of the metrics that a single file has."""
    return [at for at, metric in enumerate(metrics) if metric.unit != "pair"]


def as_json(evaluation: Evaluation) -> bytes:
    """Return an evaluation as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(evaluation), indent=2) + b"\n"
