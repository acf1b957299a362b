"""The decision whether a response is correct: a score and a threshold, as settings of a recipe.

    decision:
      score: reward
      threshold: 0.62

Every recipe accepts these settings. They replace `correct` of the scores by 1 where the score is at
least the threshold, and by 0 elsewhere. `rag-rewards calibrate` writes them to a threshold file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rag_rewards.errors import SettingError
from rag_rewards.settings import did_you_mean, dotted

PREFIX = "decision."
KEYS = ("score", "threshold")
OTHER_SCORES = {
    "metric": "evaluate --config and calibrate --config read it",
    "column": "calibrate --config reads it",
}
"""Keys of a threshold file whose score is not part of a recipe, and which command reads them."""


@dataclass(frozen=True)
class DecisionThreshold:
    """A response is correct if a score is at least a threshold.

    score      `correct`, `reward` or the name of a component of the recipe
    threshold  a finite number
    """

    threshold: float
    score: str = "correct"

    @property
    def settings(self) -> dict[str, Any]:
        """The decision as settings by dotted key."""
        return {f"{PREFIX}score": self.score, f"{PREFIX}threshold": self.threshold}


def split_decision(settings: Mapping[str, Any]) -> tuple[dict[str, Any], DecisionThreshold | None]:
    """Divide settings into those of a recipe, by dotted key, and the decision, if there is one.

    Raises SettingError for an incomplete or invalid decision.

    >>> split_decision({"bonus.value": 5, "decision.threshold": 0.5})
    ({'bonus.value': 5}, DecisionThreshold(threshold=0.5, score='correct'))
    """
    rest = dotted(settings)
    own = {key.removeprefix(PREFIX): rest.pop(key) for key in list(rest) if key.startswith(PREFIX)}
    if not own:
        return rest, None
    for key in own:
        if key in OTHER_SCORES:
            raise SettingError(
                f"decision.{key}: {own[key]!r} is not a score of a recipe ({OTHER_SCORES[key]}): "
                "calibrate a score of the recipe with --recipe"
            )
        if key not in KEYS:
            raise SettingError(
                f"unknown setting {PREFIX}{key}"
                + did_you_mean(f"{PREFIX}{key}", [PREFIX + each for each in KEYS])
            )
    if "threshold" not in own:
        raise SettingError("decision.score has no threshold: set decision.threshold")
    return rest, DecisionThreshold(_threshold(own["threshold"]), str(own.get("score", "correct")))


def _threshold(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise SettingError(f"decision.threshold must be a finite number, found {value!r}")
    return float(value)
