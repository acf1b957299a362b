"""Curricula: recipes by training step, such as the two stages of Ground-GRPO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from rag_rewards.errors import DataError, GroupError, RolloutError, SettingError
from rag_rewards.evidence.needs import Need
from rag_rewards.groups import (
    Groups,
    Scope,
    groups_of,
    raise_errors,
    renumber,
    rows_of,
    score_whole_groups,
    singletons,
)
from rag_rewards.recipe_object import Recipe
from rag_rewards.rewards.decision_threshold import DecisionThreshold
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
    def recipes(self) -> tuple[Recipe, ...]:
        """The recipes of all stages."""
        return tuple(stage.recipe for stage in self.stages)

    def decided_by(self, decision: DecisionThreshold | None) -> Curriculum:
        """Return the curriculum in which this decision applies to all stages."""
        stages = [replace(each, recipe=each.recipe.decided_by(decision)) for each in self.stages]
        return replace(self, stages=tuple(stages))

    @property
    def scope(self) -> Scope:
        return "group" if any(recipe.scope == "group" for recipe in self.recipes) else "rollout"

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
        self, rollouts: Sequence[Rollout | RolloutError], groups: Groups | None = None
    ) -> list[ScoreOrError]:
        """Return a score or an error for each rollout. The rollouts of a group need one stage."""
        rows = rows_of(rollouts)
        groups = groups_of(rows, groups)
        return score_whole_groups(
            list(map(_with_step, rows)), groups, self.scope, self._score_rollouts
        )

    def _score_rollouts(
        self, rollouts: list[Rollout], groups: Groups
    ) -> Sequence[ScoreOrError | None]:
        """Score the rollouts of each stage together. A group is a unit if a stage compares."""
        results: list[ScoreOrError | None] = [None] * len(rollouts)
        by_stage: dict[int, tuple[Recipe, list[Sequence[int]]]] = {}
        for unit in groups if self.scope == "group" else singletons(len(rollouts)):
            stages = {id(stage): stage for i in unit for stage in [self.at(_step(rollouts[i]))]}
            if len(stages) == 1:
                [(key, stage)] = stages.items()
                by_stage.setdefault(key, (stage, []))[1].append(unit)
                continue
            for i in unit:
                message = "the rows of the group belong to different stages; a group has one step"
                results[i] = with_row_id(GroupError(message), rollouts[i])
        for recipe, units in by_stage.values():
            members = [i for unit in units for i in unit]
            scored = recipe.score_each([rollouts[i] for i in members], renumber(units, members))
            for i, result in zip(members, scored, strict=True):
                results[i] = self._widen(result)
        return results

    def _widen(self, result: ScoreOrError) -> ScoreOrError:
        if isinstance(result, RolloutError):
            return result
        components = {name: result.components.get(name) for name in self.component_names}
        return Score(result.value, components, result.correct, result.details, result.turns)


def _step(rollout: Rollout) -> int:
    if rollout.step is None:
        raise DataError("missing; a curriculum selects its stage by the training step", "step")
    return rollout.step


def _with_step(row: Rollout | RolloutError) -> Rollout | RolloutError:
    """Return a row, or the error of a rollout without a step."""
    if isinstance(row, RolloutError):
        return row
    try:
        _step(row)
    except DataError as error:
        return with_row_id(error, row)
    return row


def refusal(
    reward: Recipe | Curriculum, trainer: str, *, for_groups: str = "", for_stages: str = ""
) -> str:
    """Return why a trainer does not pass what a reward needs; "" if it does.

    trainer     what passes the rollouts, for messages
    for_groups  what to use for a recipe that compares the rollouts of a group; "" if the trainer
                passes complete groups
    for_stages  what to do for a curriculum; "" if the trainer passes the training step
    """
    if for_groups and reward.scope == "group":
        return (
            f"{reward.name} compares the rollouts of a group, and {trainer} passes one at a time: "
            f"{for_groups}"
        )
    if for_stages and isinstance(reward, Curriculum):
        return f"{trainer} does not pass the training step to a reward: {for_stages}"
    return ""
