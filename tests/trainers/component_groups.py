"""Batches of groups with components, and their advantages in GDPO, for the tests of all trainers.

The naive computation here has no pools and no turns: it is the equation of GDPO for one number of
each component.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from rag_rewards import Rollout, Score
from rag_rewards.recipe_object import Recipe
from rag_rewards.reward import Component

EPSILON = {"verl": 1e-6, "trl": 1e-4, "swift": 1e-8}
Member = Mapping[str, float | None]


@dataclass(frozen=True)
class ComponentBatch:
    """Groups of equal size: for each member the value of each component."""

    name: str
    groups: tuple[tuple[Member, ...], ...]
    weights: Mapping[str, float] = field(default_factory=lambda: {"outcome": 1.0, "format": 1.0})

    def normalized(self, preset: str) -> list[list[list[float]]]:
        """Return the weighted sum of the normalized components of each member, as one turn."""
        return [
            [[sum(values)] for values in zip(*self._columns(group, EPSILON[preset]), strict=True)]
            for group in self.groups
        ]

    def _columns(self, group: Sequence[Member], epsilon: float) -> list[list[float]]:
        columns = []
        for name, weight in self.weights.items():
            values = [member[name] for member in group]
            present = [value for value in values if value is not None]
            is_flat = len(set(present)) < 2
            mean = 0.0 if is_flat else fmean(present)
            scale = 1.0 if is_flat else stdev(present) + epsilon
            columns.append(
                [
                    0.0 if is_flat or value is None else weight * (value - mean) / scale
                    for value in values
                ]
            )
        return columns


def _group(*rows: tuple[float | None, float | None]) -> tuple[Member, ...]:
    return tuple({"outcome": outcome, "format": form} for outcome, form in rows)


_MIXED = _group((1.0, 1.0), (0.0, 1.0), (0.0, 0.0), (0.5, 0.0))
_EQUAL_SUMS = _group((1.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.0, 1.0))
_FLAT = _group(*[(0.7, 0.1)] * 4)

BATCHES = (
    ComponentBatch("two groups", (_MIXED, _group((0.0, 1.0), (0.0, 0.0), (0.3, 0.0), (1.0, 1.0)))),
    ComponentBatch("weights", (_MIXED, _MIXED[::-1]), {"outcome": 1.0, "format": 0.25}),
    ComponentBatch("equal sums", (_MIXED, _EQUAL_SUMS), {"outcome": 1.0, "format": 0.5}),
    ComponentBatch("a flat group", (_MIXED, _FLAT)),
    ComponentBatch("a flat component", (_MIXED, _group((1, 0.1), (0, 0.1), (0, 0.1), (1, 0.1)))),
    ComponentBatch(
        "a missing component", (_MIXED, _group((1.0, None), (0.0, 1.0), (0.0, 0.0), (1.0, 0.0)))
    ),
)


class Written:
    """A reward that reads its components from the response, a JSON object; 0 if it is empty."""

    name = "written"
    scope = "rollout"

    def __init__(self) -> None:
        self.passes = 0

    def needs(self, rollout: Rollout) -> list[Any]:
        return []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        self.passes += 1
        scores = []
        for rollout in rollouts:
            components = json.loads(rollout.parsed.text or '{"outcome": 0.0, "format": 0.0}')
            scores.append(Score(sum(value or 0.0 for value in components.values()), components))
        return scores


def written() -> Recipe:
    """Return a recipe with the components of these batches. `recipe.total.passes` counts passes."""
    reward = Written()
    return Recipe("written", (Component(reward, "outcome"), Component(reward, "format")), reward)


def texts_of(batch: ComponentBatch) -> list[str]:
    """Return the responses of a batch, which contain the components of their rollouts."""
    return [json.dumps(member) for group in batch.groups for member in group]
