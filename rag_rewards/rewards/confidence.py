"""Confidence that a response states about its answer (RLCR)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.format import Format
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import check_choices
from rag_rewards.text.sections import Tags

_LONGEST = 40
"""Number of characters up to which a text can be a number."""


def stated_confidence(text: str | None) -> float | None:
    """Return the number from 0 to 1 that a text consists of, else None.

    The text is a number as Python's `float` reads it. White space around it is allowed; a
    percentage, words and NaN are not. Source: RLCR, released code at 8904bed: reward_fns.py, which
    also accepts NaN.

    >>> [stated_confidence(text) for text in (" 0.9 ", "1", "90%", "90", "nan", None)]
    [0.9, 1.0, None, None, None, None]
    """
    if text is None or len(bare := text.strip()) > _LONGEST:
        return None
    try:
        value = float(bare)
    except ValueError:
        return None
    return abs(value) if 0 <= value <= 1 else None


def calibration(format: float, correct: float, confidence: float) -> float:
    """Return f·(1 − (c − p)²), for the format f, the correctness c and the confidence p.

    All of them are from 0 to 1, and so is the value. Source: RLCR, released code at 8904bed:
    brier_reward.

    >>> calibration(1, 1, 0.5), calibration(0, 1, 1)
    (0.75, 0.0)
    """
    return format * (1.0 - (correct - confidence) ** 2)


@dataclass(frozen=True)
@check_choices
class StatedConfidence(RolloutReward):
    """The confidence in the section <confidence>, 0 to 1, or None without a valid number.

    Components: `confidence`, the same number, and `format`, 1 if the response has the sections of
    `format` and a valid confidence, else 0. Source: RLCR, released code at 8904bed: format_reward.
    """

    format: Format = Format(Tags(("answer", "confidence")))
    name: str = "confidence"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        content = rollout.parsed.cut(self.format.tags).content
        confidence = stated_confidence(content.get("confidence"))
        form = 0.0 if confidence is None else self.format.of(rollout)
        return Score(confidence, {"format": form, "confidence": confidence})
