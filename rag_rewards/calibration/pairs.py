"""The agreement of two scores, or of two columns of labels, with each other."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import isnan

from rag_rewards.calibration.report import Pair
from rag_rewards.calibration.samples import MISSING, LabelColumn, Samples, ScoreColumn
from rag_rewards.metrics.agreement import (
    ALL_EQUAL,
    CELLS,
    NO_ROWS,
    Agreement,
    Figure,
    agreement_of,
    cell_of,
)
from rag_rewards.metrics.intervals import Resampling, intervals_of
from rag_rewards.metrics.metric import Parts, Values

Verdicts = Mapping[int, bool]
"""Verdicts by the position of the row."""


def label_verdicts(column: LabelColumn) -> Verdicts:
    """Return the labels of a column as verdicts."""
    return {row: bool(value) for row, value in enumerate(column.values) if value != MISSING}


def score_verdicts(scores: ScoreColumn, threshold: float | None) -> Verdicts:
    """Return the verdicts of scores at a threshold; none without a threshold."""
    if threshold is None:
        return {}
    return {row: s >= threshold for row, s in enumerate(scores.values) if not isnan(s)}


def pairs_of(
    verdicts: Sequence[tuple[str, Verdicts]], samples: Samples, resampling: Resampling
) -> list[Pair]:
    """Return the agreement of each pair of named verdicts."""
    pairs = combinations(verdicts, 2)
    return [_pair((a, b), one, other, samples, resampling) for (a, one), (b, other) in pairs]


def _pair(
    names: tuple[str, str], one: Verdicts, other: Verdicts, samples: Samples, resampling: Resampling
) -> Pair:
    """Return the agreement of the verdicts of the rows that have both."""
    cells = {row: (verdict, other[row]) for row, verdict in one.items() if row in other}
    order = {p: at for at, p in enumerate(dict.fromkeys(samples.prompts[row] for row in cells))}
    columns = {name: array("d", bytes(8 * len(order))) for name in CELLS}
    for row, cell in cells.items():
        columns[cell_of(*cell)][order[samples.prompts[row]]] += 1.0
    ends = intervals_of([(_agreement, columns)], resampling)[0] if order else {}
    figures = {
        name: Figure(value, *(ends.get(name) or ()))
        if value is not None
        else Figure(None, reason=ALL_EQUAL if cells else NO_ROWS)
        for name, value in _values(Agreement.of(cells.values())).items()
    }
    return Pair(first=names[0], second=names[1], rows=len(cells), **figures)


def _agreement(sums: Parts) -> Values:
    return _values(agreement_of(sums))


def _values(agreement: Agreement) -> Values:
    """Return the share of equal verdicts, and κ. None where it is not defined."""
    if not agreement.count:
        return {"equal": None, "kappa": None}
    equal = (agreement.true_positives + agreement.true_negatives) / agreement.count
    return {"equal": equal, "kappa": None if isnan(agreement.kappa) else agreement.kappa}
