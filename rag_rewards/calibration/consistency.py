"""The agreement of two scores, of two columns of labels, and of a judge with itself."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import isnan, nan

from rag_rewards.calibration.options import JudgeTrials
from rag_rewards.calibration.report import Consistency, Pair
from rag_rewards.calibration.samples import MISSING, LabelColumn, Samples, ScoreColumn
from rag_rewards.metrics.agreement import Agreement
from rag_rewards.metrics.intervals import Resampling, intervals_of
from rag_rewards.metrics.label_agreement import (
    ALL_EQUAL,
    CELLS,
    NO_ROWS,
    Figure,
    agreement_of,
    cell_of,
)
from rag_rewards.metrics.metric import Parts, Values

Verdicts = Mapping[int, bool]
"""Verdicts by the position of the row."""
Decided = tuple[ScoreColumn, float | None]
"""Scores and their threshold."""


def score_pair(one: Decided, other: Decided, samples: Samples, resampling: Resampling) -> Pair:
    """Return the agreement of two scores at their thresholds."""
    names = one[0].name, other[0].name
    return _pair(names, _verdicts(*one), _verdicts(*other), samples, resampling)


def label_pair(
    one: LabelColumn, other: LabelColumn, samples: Samples, resampling: Resampling
) -> Pair:
    """Return the agreement of two columns of labels."""
    names = one.name, other.name
    return _pair(names, _labels(one), _labels(other), samples, resampling)


def _labels(column: LabelColumn) -> Verdicts:
    return {row: bool(value) for row, value in enumerate(column.values) if value != MISSING}


def _verdicts(scores: ScoreColumn, threshold: float | None) -> Verdicts:
    if threshold is None:
        return {}
    return {row: s >= threshold for row, s in enumerate(scores.values) if not isnan(s)}


def _pair(
    names: tuple[str, str], one: Verdicts, other: Verdicts, samples: Samples, resampling: Resampling
) -> Pair:
    rows = [row for row in one if row in other]
    cells = [(one[row], other[row]) for row in rows]
    order = {p: at for at, p in enumerate(dict.fromkeys(samples.prompts[row] for row in rows))}
    columns = {name: array("d", bytes(8 * len(order))) for name in CELLS}
    for row, cell in zip(rows, cells, strict=True):
        columns[cell_of(*cell)][order[samples.prompts[row]]] += 1.0
    ends = intervals_of([(_agreement, columns)], resampling)[0] if order else {}
    values = _values(Agreement.of(cells))
    equal, kappa = (_figure(values[name], ends.get(name)) for name in ("equal", "kappa"))
    return Pair(first=names[0], second=names[1], rows=len(rows), equal=equal, kappa=kappa)


def _agreement(sums: Parts) -> Values:
    return _values(agreement_of(sums))


def _values(agreement: Agreement) -> Values:
    if not agreement.count:
        return {"equal": None, "kappa": None}
    equal = (agreement.true_positives + agreement.true_negatives) / agreement.count
    return {"equal": equal, "kappa": None if isnan(agreement.kappa) else agreement.kappa}


def _figure(value: float | None, ends: tuple[float, float] | None) -> Figure:
    if value is None:
        return Figure(None, reason=ALL_EQUAL if ends is not None else NO_ROWS)
    return Figure(value, *ends) if ends else Figure(value)


# --- a judge -------------------------------------------------------------------------------------


def consistency_reports(trials: JudgeTrials, decided: Sequence[Decided]) -> list[Consistency]:
    """Return the consistency of a judge over seeds, for each position, and over positions.

    The scores of the trials are the last ones: all seeds in the first position, then all seeds in
    the other one.
    """
    if trials.count == 1:
        return []
    own = decided[len(decided) - trials.count :]
    reports = []
    orders = [own[at : at + trials.repeat] for at in range(0, len(own), trials.repeat)]
    if trials.repeat > 1:
        reports += [_consistency("seeds", order) for order in orders]
    if trials.swap:
        reports += [_consistency("positions", pair) for pair in zip(*orders, strict=True)]
    return reports


def _consistency(over: str, decided: Sequence[Decided]) -> Consistency:
    verdicts = [_verdicts(*each) for each in decided]
    rows = [row for row in verdicts[0] if all(row in each for each in verdicts)]
    raters = len(verdicts)
    yes = [sum(each[row] for each in verdicts) for row in rows]
    unanimous = sum(n in (0, raters) for n in yes)
    pairs = raters * (raters - 1) // 2
    equal = sum(_equal_pairs(n, raters) for n in yes)
    kappa = fleiss_kappa(yes, raters)
    kappa_reason = ALL_EQUAL if rows else NO_ROWS
    return Consistency(
        over=over,
        scores=[scores.name for scores, _ in decided],
        rows=len(rows),
        unanimous=_share(unanimous, len(rows)),
        equal=_share(equal, len(rows) * pairs),
        fleiss_kappa=Figure(None, reason=kappa_reason) if isnan(kappa) else Figure(kappa),
    )


def fleiss_kappa(yes: Sequence[int], raters: int) -> float:
    """Return Fleiss' κ = (P̄ − P̄_e) / (1 − P̄_e) of rows that equally many raters judged.

    `yes` is the number of verdicts yes of each row, `raters` the number of verdicts of each row.
    Range −1/(raters − 1) to 1. NaN without rows, with fewer than two raters, and if all verdicts
    are equal. Source: Fleiss 1971, Eq. 7.

    >>> round(fleiss_kappa([3, 0, 2], 3), 3)
    0.55
    """
    if not yes or raters < 2:
        return nan
    pairs = raters * (raters - 1)
    agreement = sum(n * (n - 1) + (raters - n) * (raters - n - 1) for n in yes)
    observed = agreement / (pairs * len(yes))
    share = sum(yes) / (raters * len(yes))
    expected = share**2 + (1 - share) ** 2
    return (observed - expected) / (1 - expected) if expected < 1 else nan


def _equal_pairs(yes: int, raters: int) -> int:
    """Return the number of pairs of equal verdicts."""
    no = raters - yes
    return (yes * (yes - 1) + no * (no - 1)) // 2


def _share(part: int, whole: int) -> Figure:
    return Figure(part / whole) if whole else Figure(None, reason=NO_ROWS)
