"""The plan of the trainings on a real language model, fixed before the first run.

Each recipe has one primary measure on the held-out questions, sampled at temperature 1. All other
measures are secondary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

QUESTIONS = "d8417fd7a37f2939"
"""Digest of all questions with their documents and labels."""
SEEDS = (0, 1)
STEPS = 100
PROMPTS = 4
"""Questions of a step, each with a group of responses."""
GROUP = 8
LEARNING_RATE = 2e-5
"""Constant. The published rates are for models with 10 to 60 times as many weights."""
TEMPERATURE = 1.0
KL_WEIGHT = 0.0
SAMPLES = 4
"""Sampled responses to each held-out question."""
CURVE_INTERVAL = 20
"""Steps between two measurements of the primary measure, with one response per question."""
SAVE_INTERVAL = 5
"""Steps between two checkpoints."""


@dataclass(frozen=True)
class WarmUp:
    """The supervised training before the trainings with rewards.

    An epoch of one form costs about 550 processor seconds, a training about 3,000. The rewards need
    right responses to prefer, so that there are several epochs.

    epochs     passes over the training questions
    batch      questions of a step
    responses  examples of each question in a step
    """

    epochs: int = 3
    batch: int = 8
    responses: int = 4
    learning_rate: float = 1e-4


WARM_UP = WarmUp()


@dataclass(frozen=True)
class Arm:
    """One training with a reward.

    reward      recipe, with its settings
    primary     name of the primary measure
    expected    direction of the primary measure if the reward teaches: 1 up, −1 down, 0 none
    compared    name of the arm without the published idea
    answerable  whether only answerable questions are trained: the reward is 0 for all others
    """

    name: str
    form: str
    reward: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    primary: str = "accuracy"
    expected: int = 1
    compared: str | None = None
    answerable: bool = False


ARMS = (
    Arm(
        "truthrl ternary",
        "truthrl",
        "truthrl",
        {"verifier": "exact"},
        "hallucination",
        -1,
        "truthrl binary",
    ),
    Arm(
        "truthrl binary",
        "truthrl",
        "truthrl",
        {"verifier": "exact", "scheme": "binary"},
        "hallucination",
        0,
    ),
    Arm("ctrl-rag", "ctrl", "ctrl-rag", {}, "citation precision", 1, "accuracy alone", True),
    Arm(
        "accuracy alone",
        "ctrl",
        "rag-total",
        {"alpha": 0.0, "beta": 1.0},
        "citation precision",
        0,
        None,
        True,
    ),
    Arm("rlcr", "rlcr", "rlcr", {}, "brier", -1),
    Arm("ground-grpo", "ground", "ground-grpo", {"citation.judge_by": "gold"}, "cited right"),
    Arm("arena", "arena", "arena", {}, "relevance"),
)
"""In the order of their information: the first seed of all arms is run before the second one."""
