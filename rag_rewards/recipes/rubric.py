"""A rubric: the weighted mean of the grades of a judge by criteria."""

from __future__ import annotations

from rag_rewards.definition import ComponentInfo, RecipeDefinition
from rag_rewards.prompts import OutputForm
from rag_rewards.recipe_object import Recipe
from rag_rewards.reward import Component
from rag_rewards.rewards.rubric import Rubric
from rag_rewards.settings import Part


def rubric(reward: Rubric) -> Recipe:
    """Return the value of the rubric, and the grade of each criterion that all rows have."""
    names = reward.criterion_names
    return Recipe("rubric", (reward, *(Component(reward, name) for name in names)), reward)


RUBRIC = RecipeDefinition(
    name="rubric",
    summary="weighted criteria, each graded by a judge or checked by a rule",
    source="HealthBench, arXiv 2505.08775, section 3; Rubrics as Rewards, arXiv 2507.17746",
    output=OutputForm("any", required=False),
    parts={"reward": Part(Rubric(), prefix="")},
    build=rubric,
    fields=("rubric", "verdicts.rubric"),
    components=(ComponentInfo("rubric", "weighted mean of the grades"),),
)
