"""Agreement of verdicts and scores with human labels: κ, error rates and AUC.

`Agreement` and `ScoreCounts` are the definitions; `figures` adds bootstrap intervals.

A score is a number that is higher for responses with the label yes. A threshold turns a score into
a verdict: yes if score ≥ threshold. All scores must be finite.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import isnan, nan
from typing import Any

import msgspec

from rag_rewards.errors import RowError, shorten
from rag_rewards.metrics.intervals import Interval, Resampling, intervals, resampled_weights
from rag_rewards.metrics.metric import Values


@dataclass(frozen=True)
class Agreement:
    """Counts of a yes/no verdict against a human label.

    true_positives   verdict yes, label yes     false_positives  verdict yes, label no
    false_negatives  verdict no, label yes      true_negatives   verdict no, label no
    """

    true_positives: int = 0
    false_positives: int = 0
    false_negatives: int = 0
    true_negatives: int = 0

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool]]) -> Agreement:
        """Count (verdict, label) pairs."""
        counts = [0, 0, 0, 0]
        for verdict, label in pairs:
            counts[(0 if label else 1) if verdict else (2 if label else 3)] += 1
        return cls(*counts)

    @property
    def count(self) -> int:
        return (
            self.true_positives + self.false_positives + self.false_negatives + self.true_negatives
        )

    @property
    def kappa(self) -> float:
        """Cohen's κ = (p_o − p_e) / (1 − p_e).

        p_o is the share of pairs that agree, and p_e the share that would agree if verdicts and
        labels were independent. Range −1 to 1. If every verdict and every label is the same,
        p_e is 1 and κ is not defined: the value is NaN, as it is without pairs.

        >>> Agreement.of([(True, True), (False, False), (True, False), (False, False)]).kappa
        0.5
        """
        verdicts = self.true_positives + self.false_positives
        labels = self.true_positives + self.false_negatives
        # All terms are multiplied by count², so that equal κ are equal numbers.
        observed = (self.true_positives + self.true_negatives) * self.count
        expected = verdicts * labels + (self.count - verdicts) * (self.count - labels)
        rest = self.count**2 - expected
        return (observed - expected) / rest if rest else nan

    @property
    def precision(self) -> float:
        """Share of the verdicts yes that have the label yes. NaN without such a verdict."""
        return _share(self.true_positives, self.false_positives)

    @property
    def recall(self) -> float:
        """Share of the labels yes that have the verdict yes. NaN without such a label."""
        return _share(self.true_positives, self.false_negatives)

    @property
    def false_positive_rate(self) -> float:
        """Share of the labels no that have the verdict yes. NaN without such a label."""
        return _share(self.false_positives, self.true_negatives)

    @property
    def false_negative_rate(self) -> float:
        """Share of the labels yes that have the verdict no. NaN without such a label."""
        return _share(self.false_negatives, self.true_positives)


def _share(part: int, rest: int) -> float:
    return part / (part + rest) if part + rest else nan


@dataclass(frozen=True)
class ScoreCounts:
    """Distinct scores in increasing order, with the number of labels yes and no of each.

    Equal scores are one entry, so that a threshold never separates them.
    """

    scores: Sequence[float] = ()
    yes: Sequence[int] = ()
    no: Sequence[int] = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, bool]]) -> ScoreCounts:
        """Count (score, label) pairs."""
        counts: dict[float, list[int]] = {}
        for score, label in pairs:
            counts.setdefault(score, [0, 0])[label] += 1
        scores = sorted(counts)
        return cls(scores, [counts[s][1] for s in scores], [counts[s][0] for s in scores])

    @cached_property
    def _below(self) -> tuple[list[int], list[int]]:
        """The labels yes and no of all smaller scores, for each score and for infinity."""
        return list(accumulate(self.yes, initial=0)), list(accumulate(self.no, initial=0))

    @property
    def auc(self) -> float:
        """P(score of a yes > score of a no) + ½ P(equal scores), for random pairs. Range 0 to 1.

        Equal scores count one half, as midranks do. NaN if one of the two labels does not occur.

        >>> ScoreCounts.of([(0.9, True), (0.5, True), (0.5, False), (0.1, False)]).auc
        0.875
        """
        wins, below = 0.0, 0
        for yes, no in zip(self.yes, self.no, strict=True):
            wins += yes * (below + no / 2)
            below += no
        pairs = sum(self.yes) * below
        return wins / pairs if pairs else nan

    def at(self, threshold: float) -> Agreement:
        """Return the agreement of the verdict score ≥ threshold."""
        return self._from(bisect_left(self.scores, threshold))

    def _from(self, first: int) -> Agreement:
        """The agreement if the scores from this position are accepted."""
        yes, no = self._below
        return Agreement(yes[-1] - yes[first], no[-1] - no[first], yes[first], no[first])

    def thresholds(self) -> Iterator[tuple[float, Agreement]]:
        """Yield each score as a threshold with its agreement, the highest one first."""
        for at in range(len(self.scores) - 1, -1, -1):
            yield self.scores[at], self._from(at)

    def best_kappa(self) -> float | None:
        """Return the threshold with the highest κ. Of equal ones, the highest threshold.

        None if one of the two labels does not occur.

        >>> ScoreCounts.of([(0.9, True), (0.5, True), (0.4, False), (0.1, False)]).best_kappa()
        0.5
        """
        best: tuple[float, float] | None = None
        if not (any(self.yes) and any(self.no)):
            return None
        for threshold, agreement in self.thresholds():
            if best is None or agreement.kappa > best[0]:
                best = agreement.kappa, threshold
        return None if best is None else best[1]

    def for_false_positive_rate(self, limit: float) -> float | None:
        """Return the lowest threshold whose false-positive rate is at most `limit`.

        It accepts the most labels yes of all such thresholds. None if even the highest score
        exceeds the limit, and if there is no label no.

        >>> counts = ScoreCounts.of([(0.9, True), (0.5, True), (0.5, False), (0.1, False)])
        >>> counts.for_false_positive_rate(0.5), counts.for_false_positive_rate(0.0)
        (0.5, 0.9)
        """
        lowest = None
        for threshold, agreement in self.thresholds():
            if not agreement.false_positive_rate <= limit:
                break
            lowest = threshold
        return lowest


# --- scores of rows against their labels, with intervals -----------------------------------------

CELLS = ("true_positives", "false_positives", "false_negatives", "true_negatives")
RATES = ("kappa", "precision", "recall", "false_positive_rate", "false_negative_rate")
NAMES = (*RATES, "auc")
NO_ROWS = "there is no row with a label and a score"
NO_YES = "no row has the label yes"
NO_NO = "no row has the label no"
NO_VERDICT = "no row has the verdict yes"
ALL_EQUAL = "all verdicts and all labels are equal"
NO_THRESHOLD = "there is no threshold"


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


@dataclass(frozen=True)
class Labelled:
    """Rows with a label and a score. `prompts` are resampled together."""

    scores: Sequence[float]
    labels: Sequence[bool]
    prompts: Sequence[int]

    @property
    def counts(self) -> ScoreCounts:
        return ScoreCounts.of(zip(self.scores, self.labels, strict=True))


def figures(
    labelled: Labelled,
    counts: ScoreCounts,
    threshold: float | None,
    resampling: Resampling,
) -> Figures:
    """Return the agreement at a threshold. `counts` are those of the labelled rows."""
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
        reasons |= dict.fromkeys(RATES, NO_THRESHOLD)
    shown = {name: figure_of(values.get(name), ends.get(name), reasons[name]) for name in NAMES}
    cells = {name: getattr(agreement, name) for name in CELLS} if agreement is not None else {}
    return Figures(
        rows=len(labelled.labels), prompts=resample.prompts, yes=yes, counts=cells, **shown
    )


def figure_of(value: float | None, ends: Interval | None, reason: str) -> Figure:
    """Return a value with its interval, or the reason why there is no value."""
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


YES = frozenset(("yes", "y", "true", "correct"))
NO = frozenset(("no", "n", "false", "incorrect"))


def label_of(value: Any, threshold: float | None, column: str) -> bool | float | None:
    """Return the label yes or no of a value, its grade, or None if the label is missing.

    A label is a boolean, or a text such as "yes", "no", "true", "false", "correct" or "incorrect".
    A missing value, null and an empty text are a missing label. A number is a grade, also 0 and 1;
    with a threshold, it is the label yes if it is at least the threshold. Raises RowError for any
    other value.

    >>> label_of("Yes", None, "human"), label_of(3, 3.5, "human"), label_of("", None, "human")
    (True, False, None)
    >>> label_of("4", None, "human")
    4.0
    """
    text = value.strip().casefold() if isinstance(value, str) else None
    if value is None or text == "":
        return None
    if isinstance(value, bool):
        return value
    number = _number(value)
    if number is not None:
        return number if threshold is None else number >= threshold
    if text is not None and text in YES | NO:
        return text in YES
    wanted = "true, false, yes, no, correct, incorrect or a number"
    raise RowError(f"expected a label ({wanted}), found {shorten(repr(value), 60)}", column)


def _number(value: Any) -> float | None:
    """Return a number, or a text that is one. None for everything else, such as NaN."""
    if isinstance(value, (int, float, str)):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None
    return None
