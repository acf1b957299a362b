"""Threshold files: YAML files for `--config` with the threshold that a calibration chose.

recipe: truthrl                 metric: a threshold of a metric, for `evaluate`
verifier: exact                 column: a threshold of a column, for `calibrate`
decision:                       nli: the setting citation.threshold of recipes
  score: correct
  threshold: 0.62
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from rag_rewards.calibration.options import CalibrateOptions
from rag_rewards.calibration.report import ScoreReport
from rag_rewards.errors import SettingError, UsageError
from rag_rewards.loading import RecipeSpec
from rag_rewards.metrics.agreement import Figure
from rag_rewards.rewards.decision_threshold import PREFIX, split_decision

NLI_THRESHOLD = "citation.threshold"
"""The setting of a recipe that is a threshold of an entailment model."""
_OTHERS = ("metric", "column")


@dataclass(frozen=True)
class ThresholdFile:
    """The content of a threshold file: a recipe, a metric or a column, and a threshold."""

    recipe: RecipeSpec | None = None
    score: str | None = None
    metric: str | None = None
    column: str | None = None
    threshold: float | None = None

    @classmethod
    def of(cls, spec: RecipeSpec) -> ThresholdFile:
        """Divide the content of a --config file. Raises SettingError for an invalid threshold.

        >>> settings = {"decision.metric": "f1", "decision.threshold": 1}
        >>> ThresholdFile.of(RecipeSpec(settings=settings)).metric
        'f1'
        """
        settings = dict(spec.settings)
        others = {name: settings.pop(PREFIX + name, None) for name in _OTHERS}
        settings, decision = split_decision(settings)
        has_recipe = bool(spec.recipe or spec.stages)
        chosen = [name for name, value in others.items() if value is not None]
        if len(chosen) + has_recipe > 1:
            raise SettingError(
                "a threshold belongs to one score: keep one of recipe, decision.metric and "
                "decision.column"
            )
        if chosen and decision is None:
            raise SettingError(f"decision.{chosen[0]} has no threshold: add decision.threshold")
        if has_recipe:
            return cls(
                msgspec.structs.replace(spec, settings=settings),
                decision.score if decision else None,
                threshold=decision.threshold if decision else None,
            )
        own = settings.pop(NLI_THRESHOLD, None)
        if settings or spec.hardened:
            names = ", ".join(settings) or "hardened"
            raise SettingError(f"{names}: settings belong to a recipe: set the recipe")
        nli = split_decision({f"{PREFIX}threshold": own})[1] if own is not None else None
        decision = decision or nli
        return cls(
            metric=others["metric"] and str(others["metric"]),
            column=others["column"] and str(others["column"]),
            threshold=decision.threshold if decision else None,
        )

    def options(self, **fields: Any) -> CalibrateOptions:
        """Return options with the score and the threshold of the file.

        Another rule for the threshold in `fields` takes precedence.
        """
        if fields.get("threshold") is None and fields.get("max_false_positive_rate") is None:
            fields["threshold"] = self.threshold
        fields["score"] = fields.get("score") or self.score
        fields["metrics"] = (*fields.get("metrics", ()), *([self.metric] if self.metric else []))
        fields["column"] = (*fields.get("column", ()), *([self.column] if self.column else []))
        return CalibrateOptions(recipe=self.recipe, **fields)


def threshold_yaml(options: CalibrateOptions, report: ScoreReport) -> str:
    """Return the text of a threshold file for the only score of a calibration.

    Raises UsageError if there is no threshold.
    """
    import yaml

    if report.threshold.value is None:
        raise UsageError(f"no threshold file is written: {report.threshold.reason}")
    content = _content(options, report.score, report.threshold.value)
    body = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return "".join(f"# {line}\n" for line in _comments(report)) + body


def _content(options: CalibrateOptions, score: str, threshold: float) -> dict[str, Any]:
    if options.recipe:
        decision = {"score": score.rpartition(":")[2], "threshold": threshold}
        return _recipe(options.recipe) | {"decision": decision}
    if options.metrics:
        return {"decision": {"metric": score, "threshold": threshold}}
    if options.column:
        return {"decision": {"column": score, "threshold": threshold}}
    return {NLI_THRESHOLD: threshold}


def _recipe(spec: RecipeSpec) -> dict[str, Any]:
    content: dict[str, Any] = {"recipe": spec.recipe} if spec.recipe else {"stages": spec.stages}
    if spec.hardened:
        content["hardened"] = True
    return content | spec.settings


def _comments(report: ScoreReport) -> list[str]:
    """Return what the threshold was chosen from, and what it reaches."""
    figures = report.all
    rates = [
        f"kappa {_shown(figures.kappa)}",
        f"false-positive rate {_shown(figures.false_positive_rate)}",
        f"false-negative rate {_shown(figures.false_negative_rate)}",
    ]
    return [
        "A threshold that `rag-rewards calibrate` chose. Read it with --config.",
        f"On {figures.rows:,} rows with labels: {', '.join(rates)}.",
    ]


def _shown(figure: Figure) -> str:
    return "not defined" if figure.value is None else f"{figure.value:.4f}"
