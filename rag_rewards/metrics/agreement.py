"""Agreement of yes/no verdicts with human labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
        if not self.count:
            return nan
        observed = (self.true_positives + self.true_negatives) / self.count
        yes = (self.true_positives + self.false_positives) / self.count
        label = (self.true_positives + self.false_negatives) / self.count
        expected = yes * label + (1 - yes) * (1 - label)
        return (observed - expected) / (1 - expected) if expected < 1 else nan

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
