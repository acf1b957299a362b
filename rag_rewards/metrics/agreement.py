"""Agreement of verdicts and scores with human labels: κ, error rates and AUC.

A score is a number that is higher for responses with the label yes. A threshold turns a score into
a verdict: yes if score ≥ threshold. All scores must be finite.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import nan


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
