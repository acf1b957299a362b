"""Evaluate files of rows: metrics with counts and confidence intervals, and compared files."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import msgspec

from rag_rewards.backends.model_options import ModelOptions
from rag_rewards.datasets.question_list import question_digest, questions_in
from rag_rewards.errors import OptionError, UsageError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.io.digest import sha256
from rag_rewards.io.output import check_output, partial_of, write_whole
from rag_rewards.io.output_check import refuse_overwriting
from rag_rewards.io.sources import chunks, open_source
from rag_rewards.io.storage import input_files, is_remote
from rag_rewards.metrics.bootstrap import RESAMPLES
from rag_rewards.metrics.comparison import (
    Comparison,
    check_pairs,
    compare,
    evaluate_pairs,
)
from rag_rewards.metrics.label_agreement import MetricAgreement, metric_agreement
from rag_rewards.metrics.labels import labels_of
from rag_rewards.metrics.measured_run import ErrorCount, MeasuredRun
from rag_rewards.metrics.measurement import Gather, MetricNeeds, measure
from rag_rewards.metrics.metric import Metric, RowMetric
from rag_rewards.metrics.metric_names import metrics_of
from rag_rewards.metrics.stored_evidence import StoredEvidence, complete_output
from rag_rewards.metrics.subsets import NO_LABEL, split
from rag_rewards.metrics.summary import MetricReport, Resampling, summarize
from rag_rewards.rows import NOT_JSON, Line
from rag_rewards.shards.files import InputFile
from rag_rewards.shards.run_settings import RunSettings
from rag_rewards.signature import Signature

SCORED = "correct"
"""The metric that is compared with labels by default: the decision of the recipe."""


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of `evaluate`: files of rows, metrics, and how to compute them.

    Without metrics, `correct` is compared with the labels.
    """

    sources: Sequence[str]
    metrics: Sequence[str]
    by: Sequence[str] = ()
    output: str | None = None
    resamples: int = RESAMPLES
    seed: int = 0
    models: ModelOptions = field(default_factory=ModelOptions)
    questions: str | None = None
    """File of questions. Rows of other questions are left out."""
    label: str | None = None
    """Column with human labels, with which the metrics are compared."""
    label_threshold: float | None = None
    """The lowest number in this column that is the label yes."""
    columns: str | None = None
    """Columns of fields that have another name, as in `ColumnMap`."""
    resume: bool = False
    """Use the evidence that an interrupted run has gathered for the same output."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise UsageError("no file of rows is given: give at least one")
        if self.label_threshold is not None and not self.label:
            raise OptionError("{label_threshold} is an option of labels: set {label}")
        if self.sources.count("-") > 1:
            raise UsageError("standard input (-) is given twice, and it can be read only once")
        if self.resume and not self.is_resumable:
            raise OptionError("{resume} requires {output} with the name of a file")
        refuse_overwriting({"output": self.output}, self.sources)

    @property
    def is_resumable(self) -> bool:
        """Whether the output is a local file, so that an interrupted run can continue."""
        return partial_of(self.output or "-") is not None and not is_remote(self.output or "-")


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
    agreement: list[MetricAgreement] = []
    """The agreement of the metrics of rows with the label."""


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
    metrics, fields = metrics_of(options.metrics or ([SCORED] if options.label else []))
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
        stored: StoredEvidence | None = None
        if gather is not None and options.is_resumable:
            settings = _run_settings(options, signed)
            if options.resume and (content := complete_output(str(options.output), settings)):
                return msgspec.json.decode(content, type=Evaluation)
            stored = StoredEvidence(str(options.output), settings, resume=options.resume)
            stack.callback(stored.close)
            gather = stored.gatherer(gather, gatherer.usage)
        runs = [_read(source, metrics, by, gather, options) for source in options.sources]
        evaluation = Evaluation(
            signature=signed,
            pairs=evaluate_pairs(runs, metrics, resampling),
            runs=[_report(run, metrics, by, resampling, options) for run in runs],
            comparisons=_comparisons(runs, metrics, resampling),
            model_usage=str(gatherer.usage),
        )
        if options.output:
            write_whole(options.output, as_json(evaluation))
        if stored is not None:
            stored.finish()
    return evaluation


def _close_models(models: Models) -> None:
    if models != Models():
        asyncio.run(models.close())


def _run_settings(options: EvaluateOptions, signed: str) -> RunSettings:
    """Return what decides the bytes of the output, by which a resumed run is compared."""
    paths: list[str] = []
    for source in options.sources:
        files = None if source == "-" else input_files(source)
        paths += [source] if files is None else files
    files_now = [InputFile.of(path) for path in paths if os.path.isfile(path)]
    named = {"signature": signed, "sources": " ".join(options.sources)}
    return RunSettings(options=named, files=files_now)


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
    for name in ("columns", "label", "label_threshold"):
        if (value := getattr(options, name)) is not None:
            settings[name] = value
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
    fields = [*by, *([options.label] if options.label else [])]
    with contextlib.closing(open_source(source, options.columns, growing=True)) as opened:
        lines = opened.lines
        if questions is not None:
            lines = _lines_of(questions_in(questions), lines)
        run = measure(name, chunks(lines), metrics, by=fields, gather=gather)
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
    options: EvaluateOptions,
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
    agreement = _agreement(run, metrics, resampling, options) if options.label else []
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
        agreement=agreement,
    )


def _agreement(
    run: MeasuredRun, metrics: Sequence[Metric], resampling: Resampling, options: EvaluateOptions
) -> list[MetricAgreement]:
    """Compare the metrics of rows with the label. An invalid label is an error of its row."""
    label = str(options.label)
    values = (None if text == NO_LABEL else text for text in run.labels[label])
    labels, errors = labels_of(values, run.ids, options.label_threshold, label)
    missing = labels.count(None) - sum(count.count for count in errors.counts())
    run.errors.merge(errors)
    if run.ids and not run.errors.counts() and labels.count(None) == len(labels):
        raise UsageError(
            f"{run.name}: no row has a label in {label!r}: choose the field with the human labels"
        )
    return [
        metric_agreement(cast(RowMetric, metric), measured, label, labels, resampling, missing)
        for metric, measured in zip(metrics, run.measurements, strict=True)
        if metric.unit == "row"
    ]


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
