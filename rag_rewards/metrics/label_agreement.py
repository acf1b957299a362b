"""κ, error rates and AUC of a score at a threshold, with bootstrap intervals."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

import msgspec

from rag_rewards.metrics.agreement import Agreement, ScoreCounts, area_under_curve
from rag_rewards.metrics.at_least import row_value
from rag_rewards.metrics.measured_run import Measurements
from rag_rewards.metrics.metric import Parts, RowMetric, Values
from rag_rewards.metrics.summary import Resampling, intervals_of

AUC_RANGES = 16
"""Number of ranges of scores from which the interval of the AUC is computed."""
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
    prompts, columns = _columns(labelled, counts, threshold)
    statistic = _Statistic(counts, auc, sorted(columns), threshold is not None)
    ends = intervals_of([(statistic, columns)], resampling)[0] if prompts else {}
    yes = sum(labelled.labels)
    reasons = _reasons(len(labelled.labels), yes)
    if threshold is None and labelled.labels:
        reasons |= dict.fromkeys(RATES, without_threshold)
    shown = {name: _figure(values.get(name), ends.get(name), reasons[name]) for name in NAMES}
    cells = {name: getattr(agreement, name) for name in CELLS} if agreement is not None else {}
    return Figures(rows=len(labelled.labels), prompts=prompts, yes=yes, counts=cells, **shown)


def _figure(value: float | None, ends: tuple[float, float] | None, reason: str) -> Figure:
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


def _columns(
    labelled: Labelled, counts: ScoreCounts, threshold: float | None
) -> tuple[int, dict[str, array[float]]]:
    """Return the number of prompts, and the columns whose sums determine all numbers.

    The columns are the cells of the threshold, and the labels in each range of scores, by prompt.
    """
    ranges = _ranges(counts)
    order = {prompt: at for at, prompt in enumerate(dict.fromkeys(labelled.prompts))}
    names = [*CELLS] if threshold is not None else []
    names += [f"{label}{at:03}" for at in sorted(set(ranges.values())) for label in ("yes", "no")]
    columns = {name: array("d", bytes(8 * len(order))) for name in names}
    for score, label, prompt in zip(*vars(labelled).values(), strict=True):
        place = order[prompt]
        columns[f"{'yes' if label else 'no'}{ranges[score]:03}"][place] += 1.0
        if threshold is not None:
            columns[cell_of(score >= threshold, label)][place] += 1.0
    return len(order), columns


def cell_of(verdict: bool, label: bool) -> str:
    """Return the cell that counts a verdict with a label."""
    return CELLS[(0 if label else 1) if verdict else (2 if label else 3)]


def _ranges(counts: ScoreCounts) -> dict[float, int]:
    """Return the range of each score. With few distinct scores, each of them is a range.

    Otherwise, the ranges have about equal numbers of rows.
    """
    if len(counts.scores) <= AUC_RANGES:
        return {score: at for at, score in enumerate(counts.scores)}
    total = sum(counts.yes) + sum(counts.no)
    ranges, below = {}, 0
    for score, yes, no in zip(counts.scores, counts.yes, counts.no, strict=True):
        ranges[score] = below * AUC_RANGES // total
        below += yes + no
    return ranges


class _Statistic:
    """The rates and the AUC from sums of columns.

    The AUC of ranges differs from that of the scores by a constant, which is added.
    """

    def __init__(self, counts: ScoreCounts, auc: float, names: Sequence[str], rates: bool) -> None:
        self._yes = [name for name in names if name.startswith("yes")]
        self._no = [name for name in names if name.startswith("no")]
        self._rates = rates
        places = list(_ranges(counts).values())
        of_ranges: dict[int, list[int]] = {}
        for place, yes, no in zip(places, counts.yes, counts.no, strict=True):
            own = of_ranges.setdefault(place, [0, 0])
            own[0] += yes
            own[1] += no
        coarse = area_under_curve(*zip(*of_ranges.values(), strict=True)) if of_ranges else auc
        self._shift = auc - coarse

    def __call__(self, sums: Parts) -> Values:
        auc = area_under_curve([sums[n] for n in self._yes], [sums[n] for n in self._no])
        shifted = min(max(auc + self._shift, 0.0), 1.0)
        values: Values = {"auc": None if isnan(auc) else shifted}
        return values | (_rates(agreement_of(sums)) if self._rates else {})


def agreement_of(sums: Mapping[str, float]) -> Agreement:
    """Return the agreement whose counts are sums of columns."""
    return Agreement(*(round(sums[name]) for name in CELLS))
