"""RULER: a judge compares the responses of a group in one call."""

from __future__ import annotations

from rag_rewards.definition import ComponentInfo, RecipeDefinition
from rag_rewards.prompts import OutputForm
from rag_rewards.recipe_object import Recipe
from rag_rewards.rewards.group_judge import GroupJudge
from rag_rewards.settings import Part


def ruler(reward: GroupJudge) -> Recipe:
    """Return the grade of the response within its group. Source: OpenPipe ART, ruler.py."""
    return Recipe("ruler", (reward,), reward)


RULER = RecipeDefinition(
    name="ruler",
    summary="a judge grades the responses of a group in comparison",
    source="OpenPipe ART, ruler.py",
    output=OutputForm("any", required=False),
    parts={"reward": Part(GroupJudge(), prefix="")},
    build=ruler,
    fields=("verdicts.group",),
    components=(ComponentInfo("group", "grade of the response within its group"),),
)
