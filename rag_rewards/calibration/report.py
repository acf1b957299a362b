"""The result of a calibration as a value, for tables and JSON, and its reliability curves."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, nan

import msgspec

from rag_rewards.calibration.graded import GradedReport
from rag_rewards.calibration.orders import OrderReport
from rag_rewards.metrics.agreement import NO_ROWS, Figure, Figures, ScoreCounts
from rag_rewards.metrics.measurement import ErrorCount


class LabelReport(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A column of labels: the number of each label, or of grades, and of rows without a label."""

    label: str
    yes: int
    no: int
    missing: int
    errors: list[ErrorCount]
    grades: int = 0


class Threshold(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A threshold and the rule that chose it; null with a reason if there is none.

    rule  `given`, `max_false_positive_rate`, `best_kappa`, or `binary` for scores 0 and 1
    """

    value: float | None
    rule: str
    reason: str = ""


class Bin(msgspec.Struct, frozen=True):
    """A bin of the reliability curve."""

    low: float
    high: float
    rows: int
    mean_score: float
    yes_share: float


class Reliability(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The bins of the reliability curve and the expected calibration error."""

    error: float | None
    bins: list[Bin]
    reason: str = ""


class ScoreReport(msgspec.Struct, kw_only=True):
    """The agreement of one score with one column of labels.

    missing  number of rows with a label whose score is missing
    errors   rows whose score cannot be computed
    all      all rows with a label and a score
    by       the same for each subset of the rows, at the same threshold
    """

    score: str
    label: str
    missing: int
    errors: list[ErrorCount]
    threshold: Threshold
    all: Figures
    reliability: Reliability
    by: dict[str, dict[str, Figures]]


class Pair(msgspec.Struct, kw_only=True):
    """The agreement of two scores, or of two columns of labels, with each other.

    equal  share of rows with equal verdicts
    """

    first: str
    second: str
    rows: int
    equal: Figure
    kappa: Figure


class Cost(msgspec.Struct, kw_only=True):
    """The cost of a judge for 1,000 rows, also where its verdicts are from the cache.

    requests  number of requests; a repeated attempt is not counted
    prompt_tokens, completion_tokens
              number of tokens by the count of the server
    """

    requests: float
    prompt_tokens: float
    completion_tokens: float


class Calibration(msgspec.Struct, kw_only=True):
    """The result of a calibration: `scores` for labels yes and no, `graded` for grades."""

    signature: str
    rows: int
    errors: list[ErrorCount]
    labels: list[LabelReport]
    scores: list[ScoreReport]
    label_pairs: list[Pair]
    score_pairs: list[Pair]
    cost_per_1000: Cost | None
    graded: list[GradedReport] = []
    orders: list[OrderReport] = []

    @property
    def has_errors(self) -> bool:
        """Whether a row is invalid or lacks what a score needs."""
        of_labels = [error for each in self.labels for error in each.errors]
        of_scores = [error for each in self.scores for error in each.errors]
        of_scores += [error for each in self.graded for error in each.errors]
        return bool(self.errors or of_labels or of_scores)


def as_json(calibration: Calibration) -> bytes:
    """Return a calibration as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(calibration), indent=2) + b"\n"


# --- the reliability curve -----------------------------------------------------------------------


def reliability(counts: ScoreCounts) -> Reliability:
    """Return the reliability curve of scores, or the reason why there is none."""
    if not counts.scores:
        return Reliability(error=None, bins=[], reason=NO_ROWS)
    bins = reliability_bins(counts)
    if bins is None:
        low, high = counts.scores[0], counts.scores[-1]
        return Reliability(
            error=None,
            bins=[],
            reason=f"the scores are from {low:g} to {high:g}: only scores from 0 to 1 can be "
            "compared with shares",
        )
    return Reliability(error=calibration_error(bins), bins=bins)


def reliability_bins(counts: ScoreCounts, bins: int = 10) -> list[Bin] | None:
    """Return the bins of a reliability curve that contain scores. Bins have equal width.

    A bin contains its lower end; the last one also contains 1. None if a score is outside the
    range 0 to 1. Source: Guo et al. 2017, section 2.

    >>> [b.yes_share for b in reliability_bins(ScoreCounts.of([(0.1, False), (1.0, True)]), 2)]
    [0.0, 1.0]
    """
    if counts.scores and not (counts.scores[0] >= 0.0 and counts.scores[-1] <= 1.0):
        return None
    members: dict[int, list[int]] = {}
    for at, score in enumerate(counts.scores):
        members.setdefault(min(int(score * bins), bins - 1), []).append(at)
    result = []
    for place, positions in members.items():
        yes = sum(counts.yes[at] for at in positions)
        count = yes + sum(counts.no[at] for at in positions)
        total = fsum(counts.scores[at] * (counts.yes[at] + counts.no[at]) for at in positions)
        ends = place / bins, (place + 1) / bins
        result.append(Bin(*ends, count, total / count, yes / count))
    return result


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error Σ (n_b/N)·|mean score − share of yes|. Range 0 to 1.

    NaN without bins. Source: Guo et al. 2017, Eq. 3.

    >>> calibration_error([Bin(0.5, 0.6, 4, 0.5, 0.75)])
    0.25
    """
    total = sum(each.rows for each in bins)
    if not total:
        return nan
    return fsum(each.rows * abs(each.mean_score - each.yes_share) for each in bins) / total
