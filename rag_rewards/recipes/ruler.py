"""RULER: a judge compares the responses of a group in one call."""

from __future__ import annotations

from rag_rewards.definition import ComponentInfo, HardenedSetting, Loophole, RecipeDefinition
from rag_rewards.prompts import OutputForm
from rag_rewards.recipe_object import Recipe
from rag_rewards.rewards.group_judge import GroupJudge
from rag_rewards.settings import Part
from rag_rewards.training.settings import Training

_CODE = "OpenPipe ART at 1145f02: rewards/ruler.py"
HARDENED = {
    "reads": HardenedSetting("shown", (31,), "text that the judge sees and a reader does not")
}


def ruler(reward: GroupJudge) -> Recipe:
    """Return the grade of the response within its group. Source: OpenPipe ART, ruler.py."""
    return Recipe("ruler", (reward,), reward)


RULER = RecipeDefinition(
    name="ruler",
    summary="a judge grades the responses of a group in comparison",
    source=_CODE,
    output=OutputForm("any", required=False),
    parts={"reward": Part(GroupJudge(reads="turns"), prefix="")},
    sources={"reads": f"{_CODE}: all messages"},
    build=ruler,
    fields=("verdicts.group",),
    components=(ComponentInfo("group", "grade of the response within its group"),),
    training=Training(
        notes=(
            "the judge of the released code is o3, and its instructions are replaceable, as with "
            "judge_templates here",
            "grades of different groups are not comparable",
        )
    ),
    hardened=HARDENED,
    loopholes=(
        Loophole(
            (),
            "the reward is as reliable as the judge, which a response or a retrieved page can "
            "address; judge_checks=always checks its grades with planted questions",
        ),
        Loophole((31,), "thinking and hidden text are graded"),
    ),
    deviations=(
        "the judge sees no system prompt, and the question and the documents only once",
        "grades are whole numbers, divided by the best one; the released code asks for a number "
        "from 0 to 1 and does not check its range",
        "the order of the responses follows from their texts; the released code keeps that of the "
        "group",
        "equal responses are graded once; the released code only does so if all are equal",
        "a judge that fails leaves the group unscored; the released code raises an error, or drops "
        "the group with swallow_exceptions",
    ),
)
