"""κ, error rates and AUC of a score against human labels, with bootstrap intervals."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isnan
from typing import Any

import msgspec

from rag_rewards.errors import RowError, shorten
from rag_rewards.metrics.agreement import Agreement, ScoreCounts
from rag_rewards.metrics.intervals import Interval, Resampling, intervals, resampled_weights
from rag_rewards.metrics.measurement import ErrorCounter, Measurements
from rag_rewards.metrics.metric import RowMetric, Values, row_value

CELLS = ("true_positives", "false_positives", "false_negatives", "true_negatives")
RATES = ("kappa", "precision", "recall", "false_positive_rate", "false_negative_rate")
NAMES = (*RATES, "auc")
NO_ROWS = "there is no row with a label and a score"
NO_YES = "no row has the label yes"
NO_NO = "no row has the label no"
NO_VERDICT = "no row has the verdict yes"
ALL_EQUAL = "all verdicts and all labels are equal"
NO_THRESHOLD = "there is no threshold"
NOT_BINARY = "the values are not only 0 and 1; add a threshold to the metric, for example"


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number with its 95% interval, or null with the reason why it is not defined."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


class Figures(msgspec.Struct, kw_only=True):
    """The agreement of a score with labels.

    rows, prompts        number of rows with a label and a score, and of their prompts
    yes                  number of labels yes
    counts               true and false positives and negatives at the threshold
    kappa, precision, recall, false_positive_rate, false_negative_rate
                         at the threshold
    auc                  over all thresholds
    """

    rows: int
    prompts: int
    yes: int
    counts: dict[str, int]
    kappa: Figure
    precision: Figure
    recall: Figure
    false_positive_rate: Figure
    false_negative_rate: Figure
    auc: Figure


class MetricAgreement(msgspec.Struct, kw_only=True):
    """The agreement of a metric with a column of labels.

    missing  number of rows without a label, which are left out
    """

    metric: str
    label: str
    missing: int
    figures: Figures


@dataclass(frozen=True)
class Labelled:
    """Rows with a label and a score. `prompts` are resampled together."""

    scores: Sequence[float]
    labels: Sequence[bool]
    prompts: Sequence[int]

    @property
    def counts(self) -> ScoreCounts:
        return ScoreCounts.of(zip(self.scores, self.labels, strict=True))


def metric_agreement(
    metric: RowMetric,
    measured: Measurements,
    label: str,
    labels: Sequence[bool | None],
    resampling: Resampling,
    missing: int = 0,
) -> MetricAgreement:
    """Return the agreement of a metric with the labels of all rows of a run.

    `missing` is the number of rows without a label.

    A metric with the values 0 and 1 is a verdict. For other metrics, κ and the rates are null, and
    the AUC is that of their values.
    """
    units = [at for at, unit in enumerate(measured.units) if labels[unit] is not None]
    columns = [measured.columns[part] for part in metric.parts]
    values = [row_value(metric, [column[at] for column in columns]) for at in units]
    pairs = [(at, value) for at, value in zip(units, values, strict=True) if value is not None]
    labelled = Labelled(
        [value for _, value in pairs],
        [labels[measured.units[at]] is True for at, _ in pairs],
        [measured.prompts[at] for at, _ in pairs],
    )
    counts = labelled.counts
    threshold = 1.0 if set(counts.scores) <= {0.0, 1.0} else None
    result = figures(labelled, counts, threshold, resampling, f"{NOT_BINARY}: {metric!r}>=0.5")
    return MetricAgreement(metric=repr(metric), label=label, missing=missing, figures=result)


def figures(
    labelled: Labelled,
    counts: ScoreCounts,
    threshold: float | None,
    resampling: Resampling,
    without_threshold: str = NO_THRESHOLD,
) -> Figures:
    """Return the agreement at a threshold. `counts` are those of the labelled rows.

    `without_threshold` is the reason for the numbers that are null without a threshold.
    """
    agreement = counts.at(threshold) if threshold is not None else None
    auc = counts.auc
    values: dict[str, float | None] = {"auc": None if isnan(auc) else auc}
    if agreement is not None:
        values |= _rates(agreement)
    resample = _Resample(labelled, threshold)
    ends = intervals(map(resample, resampled_weights(resample.prompts, resampling)))
    yes = sum(labelled.labels)
    reasons = _reasons(len(labelled.labels), yes)
    if threshold is None and labelled.labels:
        reasons |= dict.fromkeys(RATES, without_threshold)
    shown = {name: _figure(values.get(name), ends.get(name), reasons[name]) for name in NAMES}
    cells = {name: getattr(agreement, name) for name in CELLS} if agreement is not None else {}
    return Figures(
        rows=len(labelled.labels), prompts=resample.prompts, yes=yes, counts=cells, **shown
    )


def _figure(value: float | None, ends: Interval | None, reason: str) -> Figure:
    if value is None:
        return Figure(None, reason=reason)
    return Figure(value, *ends) if ends else Figure(value)


def _rates(agreement: Agreement) -> dict[str, float | None]:
    rates = {name: getattr(agreement, name) for name in RATES}
    return {name: None if isnan(rate) else rate for name, rate in rates.items()}


def _reasons(rows: int, yes: int) -> dict[str, str]:
    """Return why each number would not be defined."""
    if not rows:
        return dict.fromkeys(NAMES, NO_ROWS)
    one_class = NO_YES if not yes else NO_NO
    reasons = {
        "kappa": ALL_EQUAL,
        "precision": NO_VERDICT,
        "recall": NO_YES,
        "false_positive_rate": NO_NO,
        "false_negative_rate": NO_YES,
    }
    return reasons | {"auc": one_class}


# --- intervals -----------------------------------------------------------------------------------


class _Resample:
    """The rates and the AUC of labelled rows for resampled weights of their prompts."""

    def __init__(self, labelled: Labelled, threshold: float | None) -> None:
        place = {prompt: at for at, prompt in enumerate(dict.fromkeys(labelled.prompts))}
        self.prompts = len(place)
        rows = sorted(zip(*vars(labelled).values(), strict=True))
        yes = [(score, place[prompt]) for score, label, prompt in rows if label]
        no = [(score, place[prompt]) for score, label, prompt in rows if not label]
        scores_of_no = [score for score, _ in no]
        self._yes = [at for _, at in yes]
        self._no = [at for _, at in no]
        self._lower = [bisect_left(scores_of_no, score) for score, _ in yes]
        self._lower_or_equal = [bisect_right(scores_of_no, score) for score, _ in yes]
        self._first_verdicts: tuple[int, int] | None = None
        if threshold is not None:
            first_yes = bisect_left([score for score, _ in yes], threshold)
            self._first_verdicts = first_yes, bisect_left(scores_of_no, threshold)

    def __call__(self, weights: Sequence[float]) -> Values:
        yes = [weights[at] for at in self._yes]
        below = list(accumulate((weights[at] for at in self._no), initial=0.0))
        bounds = zip(yes, self._lower, self._lower_or_equal, strict=True)
        wins = sum(weight * (below[low] + below[high]) for weight, low, high in bounds) / 2
        pairs = sum(yes) * below[-1]
        values: Values = {"auc": wins / pairs if pairs else None}
        if self._first_verdicts is not None:
            first_yes, first_no = self._first_verdicts
            false_negatives, true_negatives = sum(yes[:first_yes]), below[first_no]
            cells = (sum(yes) - false_negatives, below[-1] - true_negatives)
            values |= _rates(Agreement(*map(round, (*cells, false_negatives, true_negatives))))
        return values


def cell_of(verdict: bool, label: bool) -> str:
    """Return the cell that counts a verdict with a label."""
    return CELLS[(0 if label else 1) if verdict else (2 if label else 3)]


def agreement_of(sums: Mapping[str, float]) -> Agreement:
    """Return the agreement whose counts are sums of columns."""
    return Agreement(*(round(sums[name]) for name in CELLS))


# --- labels --------------------------------------------------------------------------------------


YES = frozenset(("yes", "y", "true", "1", "correct"))
NO = frozenset(("no", "n", "false", "0", "incorrect"))


def label_of(value: Any, threshold: float | None, column: str) -> bool | None:
    """Return the label yes or no of a value, or None if the label is missing.

    A label is a boolean, 0 or 1, or a text such as "yes", "no", "true", "false", "correct" or
    "incorrect". A missing value, null and an empty text are a missing label. With a threshold, a
    number is the label yes if it is at least the threshold. Raises RowError for any other value.

    >>> label_of("Yes", None, "human"), label_of(3, 3.5, "human"), label_of("", None, "human")
    (True, False, None)
    """
    text = value.strip().casefold() if isinstance(value, str) else None
    if value is None or text == "":
        return None
    if isinstance(value, bool):
        return value
    number = _number(value)
    if threshold is not None and number is not None:
        return number >= threshold
    if number in (0, 1):
        return number == 1
    if text is not None and text in YES | NO:
        return text in YES
    wanted = "true, false, 0, 1, yes, no, correct, incorrect"
    wanted += " or a number" if threshold is not None else ""
    fix = "; use --label-threshold for graded labels" if number is not None else ""
    raise RowError(f"expected a label ({wanted}), found {shorten(repr(value), 60)}{fix}", column)


def labels_of(
    values: Iterable[Any], rows: Iterable[str], threshold: float | None, column: str
) -> tuple[list[bool | None], ErrorCounter]:
    """Return the label of each row of a column, and the errors of values that are no label.

    `rows` are the names of the rows. The label of a row in error is None.
    """
    labels: list[bool | None] = []
    errors = ErrorCounter()
    for value, row in zip(values, rows, strict=True):
        try:
            labels.append(label_of(value, threshold, column))
        except RowError as error:
            errors.add(error, f"row {shorten(row, 60)}")
            labels.append(None)
    return labels, errors


def _number(value: Any) -> float | None:
    """Return a number, or a text that is one. None for everything else, such as NaN."""
    if isinstance(value, (int, float, str)):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None
    return None
