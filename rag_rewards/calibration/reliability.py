"""The reliability curve of scores: the share of labels yes for each bin of scores."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, nan

import msgspec

from rag_rewards.metrics.agreement import NO_ROWS, ScoreCounts


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
