"""The options of a calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.files.grouped_lines import check_grouping
from rag_rewards.files.output_check import refuse_overwriting
from rag_rewards.loading import RecipeSpec
from rag_rewards.metrics.intervals import RESAMPLES
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.settings import check_choices

LENGTHS = (5, 20, 60, 200)
"""Upper ends of the ranges of words into which responses are divided."""


ClaimUnit = Literal["whole", "statements", "both"]


@dataclass(frozen=True, kw_only=True)
class JudgeTrials:
    """How often and in which ways a judge is asked."""

    repeat: int = 1
    """Ask the judge this many times, each time with another seed."""
    temperature: float | None = None
    """Sampling temperature of the judge. The default is 0, and 1 with --repeat."""
    swap: bool = False
    """Ask the judge also with the response before the gold answers, in reverse order."""
    prices: str | None = None
    """Prices of a million prompt tokens and completion tokens: `2.5,10`."""

    def __post_init__(self) -> None:
        if self.repeat < 1:
            raise OptionError("{repeat} must be at least 1, found {value}", value=self.repeat)
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise OptionError(
                "{temperature} must be from 0 to 2, found {value}", value=self.temperature
            )
        self.price_pair  # noqa: B018 (raises for invalid prices)

    @property
    def is_set(self) -> bool:
        """Whether any option is set."""
        return self != JudgeTrials()

    @property
    def count(self) -> int:
        """The number of times that the judge is asked."""
        return self.repeat * (1 + self.swap)

    @property
    def price_pair(self) -> tuple[float, float] | None:
        """The prices as numbers."""
        if self.prices is None:
            return None
        try:
            prompt, completion = map(float, self.prices.split(","))
            if min(prompt, completion) >= 0 and math.isfinite(prompt + completion):
                return prompt, completion
        except ValueError:
            pass
        raise OptionError(
            "{prices} must be two numbers, of a million prompt tokens and of a million completion "
            "tokens, such as 2.5,10; found {value!r}",
            value=self.prices,
        )


@dataclass(frozen=True)
@check_choices
class CalibrateOptions:
    """The options of `calibrate`: files, labels, the scores to compare with them, and models.

    sources     files of rows; "-" is standard input
    columns     columns of fields that have another name, as in `ColumnMap`
    label       columns with human labels
    column      columns with scores
    metrics     metrics of `evaluate` that have a value for each row
    recipe      a recipe whose `score` is compared
    score       `correct`, `reward` or a component of the recipe; None for `correct`, and for
                `reward` if the recipe has no `correct`
    claims      rows have a premise and a claim; an entailment model checks the `whole` claim, or
                each of its `statements` (the lowest probability counts), or `both`
    max_false_positive_rate
                choose the lowest threshold with this false-positive rate
    threshold   use this threshold
    progress    show a progress bar
    """

    sources: Sequence[str]
    label: Sequence[str]
    column: Sequence[str] = ()
    metrics: Sequence[str] = ()
    recipe: RecipeSpec | None = None
    score: str | None = None
    claims: ClaimUnit | None = None
    label_threshold: float | None = None
    max_false_positive_rate: float | None = None
    threshold: float | None = None
    by: Sequence[str] = ()
    lengths: Sequence[int] = LENGTHS
    trials: JudgeTrials = JudgeTrials()
    models: ModelOptions = field(default_factory=ModelOptions)
    group_size: int | None = None
    sort: bool = False
    resamples: int = RESAMPLES
    seed: int = 0
    output: str | None = None
    svg: str | None = None
    threshold_file: str | None = None
    columns: str | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        self._check_files()
        self._check_scores()
        self._check_threshold()
        self._check_trials()
        check_grouping(self.group_size, self.sort)
        lengths = list(self.lengths)
        if lengths != sorted(set(lengths)) or any(length < 1 for length in lengths):
            raise OptionError(
                "{lengths} must be increasing numbers of words of at least 1, found {value}",
                value=",".join(map(str, lengths)),
            )

    def _check_files(self) -> None:
        if not self.sources:
            raise UsageError("no file of rows is given: give at least one")
        if self.sources.count("-") > 1:
            raise UsageError("standard input (-) is given twice, and it can be read only once")
        outputs = {name: getattr(self, name) for name in ("output", "svg", "threshold_file")}
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
            if scores > 1 or len(self.label) > 1 or self.trials.count > 1:
                raise OptionError(
                    "{threshold_file} contains the threshold of one score for one label: give one "
                    "of {column}, {metrics}, {recipe} or {claims} (not both), and one {label}"
                )

    def _check_trials(self) -> None:
        if not self.trials.is_set:
            return
        if not self.models.judge:
            raise OptionError(
                "{repeat}, {temperature}, {swap} and {prices} are options of a judge: set {judge}"
            )
        if self.trials.count > 1 and len(self.metrics) + bool(self.recipe) != 1:
            raise OptionError(
                "{repeat} and {swap} ask the judge of one metric or recipe: give one of {metrics} "
                "and {recipe}"
            )
