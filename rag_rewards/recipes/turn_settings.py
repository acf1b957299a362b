"""Settings that the recipes for search agents share."""

from __future__ import annotations

from typing import get_args

from rag_rewards.definition import HardenedSetting
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.correctness import Metric
from rag_rewards.rewards.search import MalformedTurns
from rag_rewards.settings import Part
from rag_rewards.turns.dialects import DialectName
from rag_rewards.turns.trajectory import Reading

TURNS = {
    "reading": Part(Reading(), prefix="", values={"dialect": get_args(DialectName)}),
    "malformed": Part(MalformedTurns(), prefix=""),
}
"""The parts that read turns and subtract penalties."""


def exact_match(name: str) -> Part:
    """Return the part of an exact match with the gold answers, on which no judge decides."""
    return Part(
        AnswerMatch(name),
        prefix="accuracy",
        fixed=("metric", "reads"),
        values={"undecided": ("match", "wrong")},
    )


def compared_answer(metric: Metric, *others: Metric) -> Part:
    """Return the part of the answer that is the outcome, with a metric and other ones."""
    return Part(
        AnswerMatch("outcome", metric=metric),
        prefix="accuracy",
        fixed=("reads",),
        values={"metric": (metric, *others)},
    )


HARDENED = {
    "results_from": HardenedSetting(
        "environment", (33,), "a results block that the policy writes after its own query"
    ),
    "repeated_answer": HardenedSetting("none", (7,), "many answer sections, the last one right"),
    "malformed_penalty": HardenedSetting(0.1, (43,), "invalid turns until the limit"),
}
"""The hardened settings of the reading of turns."""
