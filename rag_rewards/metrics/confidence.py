"""Calibration of stated confidences: Brier score, expected calibration error and AUROC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

from rag_rewards.metrics.agreement import ScoreCounts
from rag_rewards.metrics.metric import AnswerCache, MetricBase, Parts, Reads, Values, ratio
from rag_rewards.metrics.truth import Verified
from rag_rewards.rewards.correctness import CascadeUndecided
from rag_rewards.rewards.format import stated_confidence
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.text.sections import Tags

BINS = 10
"""Number of bins of the expected calibration error, of equal width."""
_LEVELS = 100
_TAGS = Tags(("answer", "confidence"))
Stated = tuple[float, bool] | None
"""The confidence of a row, and whether its answer is right; None without a valid confidence."""


def expected_calibration_error(counts: ScoreCounts) -> float | None:
    """Return ECE = Σ_b |Σ_{i∈b} p_i − Σ_{i∈b} c_i| / N. Range 0 to 1; None without confidences.

    Bin b of 10 contains the confidences p from b/10 to below (b + 1)/10, the last one also 1.
    Source: RLCR, released code at 8904bed: eval/eval_utils.py.

    >>> expected_calibration_error(ScoreCounts.of([(0.9, True), (0.9, False), (0.2, False)]))
    0.3333333333333333
    """
    gaps = [0.0] * BINS
    rows = 0
    for confidence, yes, no in zip(counts.scores, counts.yes, counts.no, strict=True):
        place = min(int(confidence * BINS), BINS - 1)
        gaps[place] += confidence * (yes + no) - yes
        rows += yes + no
    return sum(map(abs, gaps)) / rows if rows else None


@dataclass(frozen=True, repr=False)
@check_choices
class Brier(Verified, MetricBase):
    """(1/N) Σ (c − p)² for the stated confidence p and the correctness c, 0 or 1. Range 0 to 1.

    p is the number in the section <confidence>, see `stated_confidence`. Further values: `ece`, the
    expected calibration error with 10 bins; `auroc`, the probability that a right answer has a
    higher confidence than a wrong one, where equal ones count one half; `confidence`, the mean of
    p; and `stated`, the share of the rows with a valid confidence. Other rows are excluded from the
    other values. `ece` and `auroc` read p in hundredths. `verifier` is that of `truthfulness`.
    Source: RLCR, released code at 8904bed: eval/eval_utils.py, which reads a percentage as its
    hundredth and a missing confidence as 0.
    """

    verifier: str = "exact"
    normalizer: NormalizerName = "squad"
    reads: Reads = "auto"
    undecided: CascadeUndecided = "judge"

    name = "brier"
    main_ratio = ("squares", "stated")

    def gauge(self, cache: AnswerCache) -> Callable[[ScoredRow], Stated]:
        truth_of = self.truth_gauge(cache)

        def measure(row: ScoredRow) -> Stated:
            confidence = stated_confidence(row.parsed.cut(_TAGS).content.get("confidence"))
            return None if confidence is None else (confidence, truth_of(row)[0] == "correct")

        return measure

    def fold(self, marks: Sequence[Stated]) -> Parts:
        """Return the sums of rows. Only the confidences that occur have counts."""
        parts = {"squares": 0.0, "confidences": 0.0, "stated": 0.0, "rows": float(len(marks))}
        for confidence, is_right in filter(None, marks):
            parts["squares"] += (is_right - confidence) ** 2
            parts["confidences"] += confidence
            parts["stated"] += 1.0
            level = f"{'right' if is_right else 'wrong'}@{round(confidence * _LEVELS)}"
            parts[level] = parts.get(level, 0.0) + 1.0
        return parts

    def values(self, sums: Parts) -> Values:
        levels = sorted({int(part.split("@")[1]) for part in sums if "@" in part})
        counts = ScoreCounts(
            [level / _LEVELS for level in levels],
            [int(sums.get(f"right@{level}", 0)) for level in levels],
            [int(sums.get(f"wrong@{level}", 0)) for level in levels],
        )
        auc = counts.auc
        return {
            self.name: ratio(sums.get("squares", 0.0), sums.get("stated", 0.0)),
            "ece": expected_calibration_error(counts),
            "auroc": None if isnan(auc) else auc,
            "confidence": ratio(sums.get("confidences", 0.0), sums.get("stated", 0.0)),
            "stated": ratio(sums.get("stated", 0.0), sums.get("rows", 0.0)),
        }
