"""Agreement of the values of scored rows with human labels, for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rag_rewards.errors import UsageError
from rag_rewards.metrics.agreement import MetricAgreement, labels_of, metric_agreement
from rag_rewards.metrics.intervals import RESAMPLES, Resampling
from rag_rewards.metrics.measurement import ErrorCount
from rag_rewards.metrics.scored_values import ScoreValue
from rag_rewards.report.comparison.values import measured_values
from rag_rewards.report.rows import RowFile


@dataclass(frozen=True)
class LabelOptions:
    """The column with human labels, and the lowest number in it that is the label yes."""

    label: str
    threshold: float | None = None


@dataclass(frozen=True)
class FileAgreement:
    """The agreement of each value of a file with the labels, and the labels that are invalid."""

    values: list[MetricAgreement] = field(default_factory=list)
    errors: list[ErrorCount] = field(default_factory=list)


def file_agreement(
    file: RowFile, options: LabelOptions, metrics: Sequence[ScoreValue]
) -> FileAgreement:
    """Compare values of a file with its labels. `correct` comes first.

    Raises UsageError if no row has a label.
    """
    names = [str(row.id) for row in file.rows]
    labels, errors = labels_of(file.labels, names, options.threshold, options.label)
    invalid = errors.counts()
    missing = labels.count(None) - sum(error.count for error in invalid)
    if labels and missing == len(labels):
        raise UsageError(
            f"{file.name}: no row has a label in {options.label!r}: choose the field with the "
            "human labels"
        )
    run = measured_values(file.name, file.rows, metrics)
    reports = [
        metric_agreement(metric, measured, options.label, labels, Resampling(RESAMPLES), missing)
        for metric, measured in zip(metrics, run.measurements, strict=True)
    ]
    return FileAgreement(sorted(reports, key=lambda each: each.metric != "correct"), invalid)


def agreement_notes(file: str, errors: Sequence[ErrorCount]) -> list[str]:
    """Describe the labels that are invalid."""
    return [
        f"{file}: {error.count:,} labels left out, the first: {error.first}" for error in errors
    ]
