"""The agreement of scores with grades of people, where a column of labels has grades."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import isnan

import msgspec

from rag_rewards.calibration.options import CalibrateOptions
from rag_rewards.calibration.samples import LabelColumn, Samples, ScoreColumn, positions
from rag_rewards.errors import OptionError
from rag_rewards.metrics.graded_agreement import Graded, GradedFigures
from rag_rewards.metrics.intervals import Resampling
from rag_rewards.metrics.measurement import ErrorCount


class GradedReport(msgspec.Struct, kw_only=True):
    """The agreement of one score with the grades of one column of labels.

    score    name of the score, or of another column of grades
    scale    the grades that the scores 0 and 1 correspond to; null if both have one scale
    missing  number of rows with a grade whose score is missing
    errors   rows whose score cannot be computed
    all, by  all rows with a grade and a score, and each subset of them
    """

    score: str
    label: str
    scale: tuple[float, float] | None
    missing: int
    errors: list[ErrorCount]
    all: GradedFigures
    by: dict[str, dict[str, GradedFigures]]


def graded_reports(
    samples: Samples, options: CalibrateOptions, resampling: Resampling
) -> list[GradedReport]:
    """Return the agreement of each score, and of each pair of graders, with the grades.

    Scores from 0 to 1 are compared with (g − a)/(b − a), where a and b are the ends of the scale.

    Raises OptionError for a grade outside of the scale, and for an option of yes and no.
    """
    graded = [labels for labels in samples.labels if labels.is_graded]
    for labels in graded:
        _check(labels, options)
    reports = [
        _report(samples, scores, labels, _scale(scores, labels, options.scale), resampling)
        for labels in graded
        for scores in samples.scores
    ]
    for labels, other in combinations(graded, 2):
        reports.append(_report(samples, other, labels, None, resampling))
    return reports


def _check(labels: LabelColumn, options: CalibrateOptions) -> None:
    for name in ("threshold_file", "threshold", "max_false_positive_rate"):
        if getattr(options, name) is not None:
            raise OptionError(
                f"{{{name}}} is for the labels yes and no, and {{label}} has grades: set "
                "{label_threshold} to the lowest grade that means yes",
                label=repr(labels.name),
            )
    if options.scale is None:
        return
    low, high = options.scale
    if others := [grade for grade in labels.grades if not low <= grade <= high]:
        raise OptionError(
            "{label_range} is {scale}, and the grade {grade:g} in the column {column!r} is outside "
            "of it",
            scale=options.label_range,
            grade=others[0],
            column=labels.name,
        )


def _scale(
    scores: ScoreColumn, labels: LabelColumn, scale: tuple[float, float] | None
) -> tuple[float, float] | None:
    """Return the scale of the grades that scores from 0 to 1 are compared with.

    None if both have one scale: the scores are not from 0 to 1, or the grades are.
    """
    if not all(0 <= score <= 1 for score in scores.values if not isnan(score)):
        return None
    low, high = scale or (min(labels.grades), max(labels.grades))
    is_same = scale is None and low >= 0 and high <= 1
    return None if is_same or low == high else (low, high)


def _report(
    samples: Samples,
    scores: ScoreColumn | LabelColumn,
    labels: LabelColumn,
    scale: tuple[float, float] | None,
    resampling: Resampling,
) -> GradedReport:
    low, high = scale or (0.0, 1.0)

    def figures(rows: Iterable[int]) -> GradedFigures:
        triples = [
            (scores.values[i], (labels.values[i] - low) / (high - low), samples.prompts[i])
            for i in rows
            if not (isnan(scores.values[i]) or isnan(labels.values[i]))
        ]
        own, grades, prompts = zip(*triples, strict=True) if triples else ((), (), ())
        return Graded(own, grades, prompts).figures(resampling)

    everything = figures(range(len(samples)))
    return GradedReport(
        score=scores.name,
        label=labels.name,
        scale=scale,
        missing=len(labels.grades) - everything.rows,
        errors=scores.errors.counts(),
        all=everything,
        by={
            name: {
                subset: part
                for subset, rows in positions(samples, name)
                if (part := figures(rows)).rows
            }
            for name in samples.subsets
        },
    )
