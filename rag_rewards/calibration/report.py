"""The result of a calibration as a value, for tables and JSON."""

from __future__ import annotations

import msgspec

from rag_rewards.calibration.reliability import Reliability
from rag_rewards.metrics.agreement import Figure, Figures
from rag_rewards.metrics.measurement import ErrorCount


class LabelReport(msgspec.Struct, kw_only=True):
    """A column of labels: the number of each label, and of rows without a label."""

    label: str
    yes: int
    no: int
    missing: int
    errors: list[ErrorCount]


class Threshold(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A threshold and the rule that chose it; null with a reason if there is none.

    rule  `given`, `max_false_positive_rate`, `best_kappa`, or `binary` for scores 0 and 1
    """

    value: float | None
    rule: str
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
    """The result of a calibration."""

    signature: str
    rows: int
    errors: list[ErrorCount]
    labels: list[LabelReport]
    scores: list[ScoreReport]
    label_pairs: list[Pair]
    score_pairs: list[Pair]
    cost_per_1000: Cost | None

    @property
    def has_errors(self) -> bool:
        """Whether a row is invalid or lacks what a score needs."""
        of_labels = [error for each in self.labels for error in each.errors]
        of_scores = [error for each in self.scores for error in each.errors]
        return bool(self.errors or of_labels or of_scores)


def as_json(calibration: Calibration) -> bytes:
    """Return a calibration as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(calibration), indent=2) + b"\n"
