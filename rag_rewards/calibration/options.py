"""The options of a calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.files.grouped_lines import GroupOptions
from rag_rewards.files.output_check import refuse_overwriting
from rag_rewards.loading import RecipeSpec
from rag_rewards.metrics.intervals import RESAMPLES
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.settings import check_choices

LENGTHS = (5, 20, 60, 200)
"""Upper ends of the ranges of words into which responses are divided."""
ClaimUnit = Literal["whole", "statements", "both"]


@dataclass(frozen=True, kw_only=True)
@check_choices
class AgreementOptions:
    """How scores are compared with labels, with equal names on the command line."""

    label_threshold: float | None = None
    """Read a number in a column of labels as yes if it is at least this value."""
    label_range: str | None = None
    """Read the labels as grades on this scale, as LOW:HIGH, such as 1:5. By default, labels are
    grades if most of them are numbers other than 0 and 1, and the lowest and the highest grade are
    the ends of the scale."""
    score: str | None = None
    """Use this score of the recipe: correct, reward, or the name of a component."""
    claims: ClaimUnit | None = None
    """Read rows with a premise and a claim: --nli checks the whole claim, statements, or both."""
    max_false_positive_rate: float | None = None
    """Choose the lowest threshold with at most this rate of false positives."""
    threshold: float | None = None
    """Use this threshold. By default, the threshold with the highest κ is used."""
    by: Sequence[str] = ()
    """Show the agreement for each value of this field, such as the data set. Repeatable."""
    resamples: int = RESAMPLES
    """Number of bootstrap resamples."""
    threshold_file: str | None = None
    """Write the threshold to this file, which --config reads."""


@dataclass(frozen=True, kw_only=True)
@check_choices
class CalibrateOptions(AgreementOptions, GroupOptions):
    """The options of `calibrate`: files, labels, the scores to compare with them, and models.

    sources   files of rows; "-" is standard input
    label     columns with human labels
    column    columns with scores
    metrics   metrics of `evaluate` that have a value for each row
    recipe    a recipe whose `score` is compared: by default `correct`, or `reward` without it
    lengths   upper ends of the ranges of words into which responses are divided
    columns   columns of fields that have another name, as in `ColumnMap`
    seed      random seed of the bootstrap
    progress  show a progress bar
    """

    sources: Sequence[str] = field(kw_only=False)
    label: Sequence[str] = field(kw_only=False)
    column: Sequence[str] = ()
    metrics: Sequence[str] = ()
    recipe: RecipeSpec | None = None
    lengths: Sequence[int] = LENGTHS
    models: ModelOptions = field(default_factory=ModelOptions)
    seed: int = 0
    output: str | None = None
    columns: str | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        self._check_files()
        self._check_scores()
        self._check_threshold()
        super().__post_init__()
        lengths = list(self.lengths)
        if lengths != sorted(set(lengths)) or any(length < 1 for length in lengths):
            raise OptionError(
                "{lengths} must be increasing numbers of words of at least 1, found {value}",
                value=",".join(map(str, lengths)),
            )

    @property
    def scale(self) -> tuple[float, float] | None:
        """The ends of `label_range`. Raises OptionError unless they are increasing numbers."""
        if self.label_range is None:
            return None
        try:
            low, high = map(float, self.label_range.split(":"))
        except ValueError:
            low = high = math.nan
        if not -math.inf < low < high < math.inf:
            raise OptionError(
                "{label_range} must be two increasing numbers as LOW:HIGH, found {value!r}",
                value=self.label_range,
            )
        return low, high

    def _check_files(self) -> None:
        if not self.sources:
            raise UsageError("no file of rows is given: give at least one")
        if self.sources.count("-") > 1:
            raise UsageError("standard input (-) is given twice, and it can be read only once")
        outputs = {"output": self.output, "threshold_file": self.threshold_file}
        refuse_overwriting(outputs, self.sources)

    def _check_scores(self) -> None:
        if not self.label:
            raise OptionError("no labels are given: set {label} to the column with human labels")
        if self.claims and (self.metrics or self.recipe):
            raise OptionError(
                "{claims} compares columns and the entailment model of {nli} with labels: leave "
                "out {metrics} and {recipe}"
            )
        has_model = self.claims and self.models.nli
        if not (self.column or self.metrics or self.recipe or has_model):
            raise OptionError(
                "no score is given: set {column}, {metrics} or {recipe}, or {claims} with {nli}"
            )
        if self.score is not None and not self.recipe:
            raise OptionError("{score} is a score of a recipe: set {recipe}")

    def _check_threshold(self) -> None:
        if self.scale and self.label_threshold is not None:
            raise OptionError(
                "{label_range} reads labels as grades and {label_threshold} as yes and no: use one "
                "of them"
            )
        rate = self.max_false_positive_rate
        if rate is not None and not 0 <= rate < 1:
            raise OptionError(
                "{max_false_positive_rate} must be at least 0 and below 1, found {value}",
                value=rate,
            )
        if rate is not None and self.threshold is not None:
            raise OptionError(
                "{max_false_positive_rate} chooses a threshold and {threshold} is one: use one of "
                "them"
            )
        for name in ("threshold", "label_threshold"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise OptionError(f"{{{name}}} must be a finite number, found {{v}}", v=value)
        if self.threshold_file:
            scores = len(self.column) + len(self.metrics) + bool(self.recipe)
            if self.claims and self.models.nli:
                scores += 1 + (self.claims == "both")
            if scores > 1 or len(self.label) > 1:
                raise OptionError(
                    "{threshold_file} contains the threshold of one score for one label: give one "
                    "of {column}, {metrics}, {recipe} or {claims} (not both), and one {label}"
                )
