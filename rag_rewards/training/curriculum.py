"""Curricula: which recipe counts at which training step (Ground-GRPO's two stages)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from rag_rewards.blueprints import Recipe, Scored, named
from rag_rewards.compose import Batch
from rag_rewards.errors import DataError, GroupError, RolloutError, SettingError
from rag_rewards.evidence import Need
from rag_rewards.rollout import Rollout, Score


@dataclass(frozen=True)
class Stage:
    """A recipe, and the first step that is no longer its own; None: to the end."""

    recipe: Recipe
    until_step: int | None = None


@dataclass(frozen=True)
class Curriculum:
    """Recipes by training step; scores like a recipe, reading each rollout's `step`.

    Components are those of all stages; what a stage does not have is None there.

    >>> from rag_rewards.recipes import recipe
    >>> plan = Curriculum((Stage(recipe("naive-grpo"), 100), Stage(recipe("arena"))))
    >>> plan.at(99).name, plan.at(100).name
    ('naive-grpo', 'arena')
    """

    stages: tuple[Stage, ...]
    name: str = "curriculum"

    def __post_init__(self) -> None:
        steps = [stage.until_step for stage in self.stages]
        if not steps or steps[-1] is not None or None in steps[:-1]:
            raise SettingError("stages: every stage but the last has until_step, the last has none")
        known = [step for step in steps if step is not None]
        if any(b <= a for a, b in pairwise(known)):
            raise SettingError(f"stages: until_step must rise, found {known}")

    def at(self, step: int) -> Recipe:
        """The recipe that counts at a step."""
        for stage in self.stages:
            if stage.until_step is None or step < stage.until_step:
                return stage.recipe
        raise AssertionError("the last stage has no end")  # pragma: no cover

    @property
    def scope(self) -> Any:
        return "group" if any(s.recipe.scope == "group" for s in self.stages) else "rollout"

    @property
    def equation(self) -> str:
        return "; then ".join(
            f"until step {s.until_step}: {s.recipe.equation}"
            if s.until_step is not None
            else s.recipe.equation
            for s in self.stages
        )

    @cached_property
    def component_names(self) -> tuple[str, ...]:
        names = (name for stage in self.stages for name in stage.recipe.component_names)
        return tuple(dict.fromkeys(names))

    @property
    def signature(self) -> str:
        return " then ".join(
            s.recipe.signature + (f" until {s.until_step}" if s.until_step is not None else "")
            for s in self.stages
        )

    def needs(self, rollout: Rollout) -> list[Need]:
        return self.at(_step(rollout)).needs(rollout)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        scores = []
        for result in self.score_each(rollouts):
            if isinstance(result, RolloutError):
                raise result
            scores.append(result)
        return scores

    def score_each(
        self, rollouts: Sequence[Rollout], groups: Sequence[Sequence[int]] | None = None
    ) -> list[Scored]:
        """Scores by stage, errors in their place. A group is of one stage, or in error whole."""
        results: list[Scored | None] = [None] * len(rollouts)
        by_stage: dict[int, tuple[Recipe, list[Sequence[int]]]] = {}
        for unit in self._units(rollouts, groups):
            chosen = self._stage_of([rollouts[i] for i in unit])
            if isinstance(chosen, Recipe):
                by_stage.setdefault(id(chosen), (chosen, []))[1].append(unit)
                continue
            for i, error in zip(unit, chosen, strict=True):
                results[i] = error
        for recipe, units in by_stage.values():
            members = [i for unit in units for i in unit]
            place = {i: at for at, i in enumerate(members)}
            within = [[place[i] for i in unit] for unit in units]
            scored = recipe.score_each([rollouts[i] for i in members], within)
            for i, result in zip(members, scored, strict=True):
                results[i] = self._widen(result)
        return [result for result in results if result is not None]

    def _units(
        self, rollouts: Sequence[Rollout], groups: Sequence[Sequence[int]] | None
    ) -> Sequence[Sequence[int]]:
        """What is scored together: the groups where any stage sees groups, else each rollout."""
        if self.scope == "group":
            return Batch(rollouts, groups).groups
        return [[i] for i in range(len(rollouts))]

    def _stage_of(self, unit: Sequence[Rollout]) -> Recipe | list[RolloutError]:
        """The recipe of all members, or why each of them has none."""
        faults = [_missing_step(rollout) for rollout in unit]
        broken = next((fault for fault in faults if fault), None)
        if broken is not None:
            beside = f"its group has a row in error ({broken})"
            return [
                fault or named(GroupError(beside), rollout)
                for fault, rollout in zip(faults, unit, strict=True)
            ]
        recipes = {id(recipe): recipe for recipe in map(self.at, map(_step, unit))}
        if len(recipes) == 1:
            return next(iter(recipes.values()))
        several = "its rows are of several stages: a group is of one step"
        return [named(GroupError(several), rollout) for rollout in unit]

    def _widen(self, result: Scored) -> Scored:
        if isinstance(result, RolloutError):
            return result
        components = {name: result.components.get(name) for name in self.component_names}
        return Score(result.value, components, result.correct, result.details)


def _step(rollout: Rollout) -> int:
    if rollout.step is None:
        raise DataError("missing; a curriculum goes by the training step", "step")
    return rollout.step


def _missing_step(rollout: Rollout) -> RolloutError | None:
    try:
        _step(rollout)
    except DataError as error:
        return named(error, rollout)
    return None
