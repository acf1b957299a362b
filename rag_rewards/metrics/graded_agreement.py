"""Agreement of scores with grades of people: κ with quadratic weights, and rank correlation."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import fsum, sqrt
from operator import mul

import msgspec

from rag_rewards.metrics.agreement import NO_ROWS, Figure, figure_of
from rag_rewards.metrics.intervals import Resampling, intervals, resampled_weights
from rag_rewards.metrics.metric import Values

NO_SPREAD = "all scores, or all grades, are equal"
_LEAST = 1e-12
"""Share of the mean square below which a variance is the rounding of zero."""


class GradedFigures(msgspec.Struct, kw_only=True):
    """The agreement of a score with grades.

    rows, prompts  number of rows with a grade and a score, and of their prompts
    kappa          κ with quadratic weights
    spearman       Spearman's rank correlation
    """

    rows: int
    prompts: int
    kappa: Figure
    spearman: Figure


@dataclass(frozen=True)
class Graded:
    """Rows with a grade and a score on one scale. `prompts` are resampled together."""

    scores: Sequence[float]
    grades: Sequence[float]
    prompts: Sequence[int]

    def figures(self, resampling: Resampling) -> GradedFigures:
        """Return the agreement with 95% bootstrap intervals."""
        place = {prompt: at for at, prompt in enumerate(dict.fromkeys(self.prompts))}
        places = [place[prompt] for prompt in self.prompts]
        agreement = GradedAgreement(self.scores, self.grades)
        values = agreement([1.0] * len(places))
        ends = intervals(
            agreement([weights[at] for at in places])
            for weights in resampled_weights(len(place), resampling)
        )
        reason = NO_SPREAD if places else NO_ROWS
        shown = {name: figure_of(value, ends.get(name), reason) for name, value in values.items()}
        return GradedFigures(rows=len(places), prompts=len(place), **shown)


class GradedAgreement:
    """The agreement of scores with grades as a function of the weights of the rows.

    kappa     1 − Σ w(x − y)²/W / (E[x²] + E[y²] − 2·E[x]·E[y]) for scores x and grades y: the
              squared difference over the one that is expected if both were independent. For whole
              numbers, this is Cohen's κ with quadratic weights; for others, Lin's concordance
              correlation. Range −1 to 1
    spearman  correlation of the midranks. Range −1 to 1

    A value is None if it is not defined: κ if all scores and grades are one number, the correlation
    if all scores or all grades are equal. Sources: Cohen 1968; Lin 1989; Spearman 1904.

    >>> GradedAgreement([0, 1, 2, 2], [0, 1, 1, 2])([1.0] * 4)["kappa"]
    0.8
    """

    def __init__(self, scores: Sequence[float], grades: Sequence[float]) -> None:
        self._scores, self._grades = scores, grades
        self._squares = [x * x for x in scores], [y * y for y in grades]
        self._differences = [(x - y) ** 2 for x, y in zip(scores, grades, strict=True)]
        self._ranks = _Ranks(scores), _Ranks(grades)

    def __call__(self, weights: Sequence[float]) -> Values:
        """Return both values for weights of the rows, whole numbers of at least 0."""
        total = fsum(weights)
        if not total:
            return {"kappa": None, "spearman": None}
        return {"kappa": self._kappa(weights, total), "spearman": self._spearman(weights, total)}

    def _kappa(self, weights: Sequence[float], total: float) -> float | None:
        def mean(values: Sequence[float]) -> float:
            return fsum(map(mul, weights, values)) / total

        squares = sum(map(mean, self._squares))
        expected = squares - 2 * mean(self._scores) * mean(self._grades)
        if expected <= _LEAST * squares:
            return None
        return 1 - mean(self._differences) / expected

    def _spearman(self, weights: Sequence[float], total: float) -> float | None:
        one, other = (ranks.centered(weights, total) for ranks in self._ranks)
        weighted = list(map(mul, weights, one))
        squares = fsum(map(mul, weighted, one))
        squares_of_other = fsum(map(mul, map(mul, weights, other), other))
        if not (squares and squares_of_other):
            return None
        value = fsum(map(mul, weighted, other)) / sqrt(squares) / sqrt(squares_of_other)
        return max(-1.0, min(1.0, value))


class _Ranks:
    """The ranks of values among rows with weights."""

    def __init__(self, values: Sequence[float]) -> None:
        self._order = sorted(range(len(values)), key=values.__getitem__)
        ordered = sorted(values)
        self._first = [bisect_left(ordered, value) for value in values]
        self._end = [bisect_right(ordered, value) for value in values]

    def centered(self, weights: Sequence[float], total: float) -> list[float]:
        """Return twice the midrank of each row minus its mean, which is half of the total."""
        below = list(accumulate((weights[i] for i in self._order), initial=0.0))
        pairs = zip(self._first, self._end, strict=True)
        return [below[first] + below[end] - total for first, end in pairs]
