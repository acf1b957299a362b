"""A rubric: the weighted mean of the grades of a judge by criteria."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from rag_rewards.compose import Gate
from rag_rewards.definition import ComponentInfo, HardenedSetting, Loophole, RecipeDefinition
from rag_rewards.prompts import OutputForm
from rag_rewards.recipe_object import Recipe
from rag_rewards.reward import Component
from rag_rewards.rewards.rubric import Rubric, ValidCitation
from rag_rewards.settings import Part, about, check_choices

HIDDEN = {
    "reads": HardenedSetting("shown", (27,), "text that the judge sees and a reader does not")
}


@dataclass(frozen=True)
@check_choices
class Composition:
    """Whether a response needs a citation."""

    gate: Annotated[
        Literal["none", "citation"],
        about("citation: a response that cites no document of the row gets 0", "ours"),
    ] = "none"


def rubric(reward: Rubric, composition: Composition) -> Recipe:
    """Return the value of the rubric, and the grade of each criterion that all rows have."""
    grades = tuple(Component(reward, name) for name in reward.criterion_names)
    if composition.gate == "none":
        return Recipe("rubric", (reward, *grades), reward)
    cited = ValidCitation(reward.reads)
    return Recipe("rubric", (reward, cited, *grades), Gate(cited, reward))


RUBRIC = RecipeDefinition(
    name="rubric",
    summary="weighted criteria, each graded by a judge or checked by a rule",
    source="HealthBench, arXiv 2505.08775, section 3; Rubrics as Rewards, arXiv 2507.17746",
    output=OutputForm("any", required=False),
    parts={"reward": Part(Rubric(), prefix=""), "composition": Part(Composition(), prefix="")},
    build=rubric,
    fields=("rubric", "verdicts.rubric"),
    components=(
        ComponentInfo("rubric", "weighted mean of the grades"),
        ComponentInfo(
            "cited",
            "1 if the response cites a document of the row, otherwise 0",
            values=(0, 1),
            when="gate=citation",
        ),
    ),
    hardened=HIDDEN,
    loopholes=(
        Loophole(
            (2,),
            "a criterion with the rule contains also counts a text that is negated",
            variants={2: ("negated-text-of-a-rule",)},
        ),
        Loophole(
            (16, 17),
            "with gate=citation, a citation of any document is enough; the rule cites counts "
            "citations of further documents as well",
            variants={16: ("citation-without-a-claim",), 17: ("cited-by-a-rule",)},
        ),
        Loophole(
            (21,),
            "the reward is as reliable as the judge, which a response can address; "
            "judge_checks=always checks its grades with planted questions",
            variants={21: ("grades-by-request",)},
        ),
        Loophole((27,), "hidden text, such as a comment, is graded"),
    ),
)
