"""Curricula: recipes by training step, such as the two stages of Ground-GRPO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from rag_rewards.definition import Recipe
from rag_rewards.errors import DataError, GroupError, RolloutError, SettingError
from rag_rewards.evidence.needs import Need
from rag_rewards.groups import (
    Groups,
    check_groups,
    fail_groups,
    first_error,
    group_by_key,
    raise_errors,
    renumber,
    singletons,
)
from rag_rewards.rollout import Rollout, Score, ScoreOrError, with_row_id
from rag_rewards.signature import Signature, StageSignature


@dataclass(frozen=True)
class Stage:
    """A recipe, and the first step of the next stage. None marks the last stage."""

    recipe: Recipe
    until_step: int | None = None


@dataclass(frozen=True)
class Curriculum:
    """Recipes by training step. It scores like a recipe and reads the `step` of each rollout.

    The components are those of all stages. A component that a stage does not have is None.

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
        limits = [step for step in steps if step is not None]
        if any(b <= a for a, b in pairwise(limits)):
            raise SettingError(f"stages: until_step must increase, found {limits}")

    def at(self, step: int) -> Recipe:
        """Return the recipe of a training step."""
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

    @cached_property
    def identity(self) -> Signature:
        """The signature as a value, without models."""
        stages = [
            StageSignature(each.recipe, stage.until_step, each.settings, each.hardened)
            for stage in self.stages
            for each in stage.recipe.identity.parts
        ]
        return Signature(recipe=self.name, stages=tuple(stages))

    @property
    def signature(self) -> str:
        """One line that identifies everything that affects a score, except for the models."""
        return str(self.identity)

    def needs(self, rollout: Rollout) -> list[Need]:
        return self.at(_step(rollout)).needs(rollout)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return raise_errors(self.score_each(rollouts))

    def score_each(
        self, rollouts: Sequence[Rollout], groups: Groups | None = None
    ) -> list[ScoreOrError]:
        """Return a score or an error for each rollout. The rollouts of a group need one stage."""
        if groups is not None:
            check_groups(groups, len(rollouts))
        results: list[ScoreOrError | None] = [None] * len(rollouts)
        by_stage: dict[int, tuple[Recipe, list[Sequence[int]]]] = {}
        for unit in self._units(rollouts, groups):
            stage = self._recipe_or_errors([rollouts[i] for i in unit])
            if isinstance(stage, Recipe):
                by_stage.setdefault(id(stage), (stage, []))[1].append(unit)
                continue
            for i, error in zip(unit, stage, strict=True):
                results[i] = error
        for recipe, units in by_stage.values():
            members = [i for unit in units for i in unit]
            scored = recipe.score_each([rollouts[i] for i in members], renumber(units, members))
            for i, result in zip(members, scored, strict=True):
                results[i] = self._widen(result)
        return [result for result in results if result is not None]

    def _units(self, rollouts: Sequence[Rollout], groups: Groups | None) -> Groups:
        """Return the groups if any stage compares rollouts, or else single rollouts."""
        if self.scope != "group":
            return singletons(len(rollouts))
        return group_by_key(rollouts) if groups is None else groups

    def _recipe_or_errors(self, unit: Sequence[Rollout]) -> Recipe | list[RolloutError]:
        """Return the recipe of all members, or the error of each member."""
        errors = fail_groups([_step_error(rollout) for rollout in unit], [range(len(unit))], unit)
        if first_error(errors) is not None:
            return [error for error in errors if error is not None]
        recipes = {id(recipe): recipe for recipe in map(self.at, map(_step, unit))}
        if len(recipes) == 1:
            return next(iter(recipes.values()))
        message = "the rows of the group belong to different stages; a group has one step"
        return [with_row_id(GroupError(message), rollout) for rollout in unit]

    def _widen(self, result: ScoreOrError) -> ScoreOrError:
        if isinstance(result, RolloutError):
            return result
        components = {name: result.components.get(name) for name in self.component_names}
        return Score(result.value, components, result.correct, result.details, result.turns)


def _step(rollout: Rollout) -> int:
    if rollout.step is None:
        raise DataError("missing; a curriculum selects its stage by the training step", "step")
    return rollout.step


def _step_error(rollout: Rollout) -> RolloutError | None:
    try:
        _step(rollout)
    except DataError as error:
        return with_row_id(error, rollout)
    return None
