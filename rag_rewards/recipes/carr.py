"""CaRR: an answer with citations, and rubrics that the cited pages support (C-GRPO).

The flag `--rubric-only-positive` of the released code computes the quotient by the greatest value
of the group and then uses the value itself: `normalize=none` reproduces it.
"""

from __future__ import annotations

from dataclasses import replace

from rag_rewards.compose import weighted
from rag_rewards.definition import ComponentInfo, HardenedSetting, Loophole, RecipeDefinition
from rag_rewards.prompts import OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.recipes.turn_settings import HARDENED, TURNS, exact_match
from rag_rewards.reward import Component
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.carr import CHECKS, CarrReward, CarrRubrics
from rag_rewards.rewards.search import MalformedTurns
from rag_rewards.settings import Part
from rag_rewards.training.settings import Stated, Training
from rag_rewards.turns.trajectory import Reading

_SCRIPT = "released code at c97e7e8: training_run_4b-C-GRPO-rubric0.3.sh"

OUTPUT = OutputForm(
    "<think>…</think> <answer>… with citations [n](url) …</answer>",
    examples={"think": "I searched."},
)
PROMPT = Prompt(
    "{instruction}\n\nQuestion: {question}",
    instruction="Answer the question with the search tool. Search as often as you need, and reason "
    "inside <think> and </think> before each search. Each question hides a chain of facts: find a "
    "page for every fact on the way to the answer. Then write the answer inside <answer> and "
    "</answer>: name the answer and every person, place, work or date on the way to it, and cite "
    "the page of each fact behind it with its address, as in [1](https://example.org/page). Name "
    "one candidate only, and cite only pages that your searches returned.",
)


def carr(
    reading: Reading,
    malformed: MalformedTurns,
    answer: AnswerMatch,
    rubrics: CarrRubrics,
    reward: CarrReward,
) -> Recipe:
    """Return the outcome combined with the rubrics, at the last turn. Source: CaRR."""
    always = reward.normalize == "group_max"
    rubrics = replace(rubrics, answer=answer, always=always, alpha=reward.alpha, reading=reading)
    malformed = replace(malformed, reading=reading)
    parts = [Component(rubrics, name) for name in ("outcome", "rubrics", *CHECKS)]
    total = weighted((1, replace(reward, reward=rubrics)), (1, malformed))
    return Recipe("carr", (*parts, malformed), total, correct=parts[0])


TRAINING = Training(
    prompts=Stated(128, _SCRIPT),
    group=Stated(8, _SCRIPT),
    learning_rate=Stated(2e-6, _SCRIPT),
    kl=Stated("none", _SCRIPT),
    kl_weight=Stated(0.0, _SCRIPT),
    clip=Stated(0.2, _SCRIPT),
    response_tokens=Stated(65_536, _SCRIPT),
    notes=("the upper clip range is 0.28", "the loss ignores the tokens of the results"),
)

CARR = RecipeDefinition(
    name="carr",
    summary="a right answer, and the share of its rubrics that cited pages support",
    source="CaRR, released code at c97e7e8",
    output=OUTPUT,
    parts={
        **TURNS,
        "answer": exact_match("outcome"),
        "rubrics": Part(CarrRubrics(), prefix="", fixed=("max_cited",)),
        "reward": Part(CarrReward(CarrRubrics()), prefix=""),
    },
    build=carr,
    fields=(
        *("answers", "rubrics", "turns", "entities"),
        "verdicts.outcome (outcome.by=judge)",
        "verdicts.supported:i",
    ),
    components=(
        ComponentInfo("outcome", "1 if the answer is right, otherwise 0"),
        ComponentInfo(
            "rubrics",
            "share of the rubrics that are supported and, with connect=true, connected; missing "
            "for a wrong answer whose rubrics are not judged",
        ),
        ComponentInfo("identified", "share of the rubrics whose placeholders have names"),
        ComponentInfo("supported", "share of the rubrics that the cited results support"),
        ComponentInfo("connected", "share of the rubrics that are connected with the answer"),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    training=TRAINING,
    hardened={
        **HARDENED,
        **shared.LIST,
        "normalize": HardenedSetting(
            "right_max", (45,), "wrong rollouts whose rubrics lower the rewards of right ones"
        ),
        "cited_in": HardenedSetting(
            "shown",
            (44,),
            "citations in hidden text, in a list of sources, or in a row without a claim",
        ),
    },
    loopholes=(
        Loophole(
            (1,),
            "with several required answers and outcome.by=rules, a list of every candidate "
            "answer counts as right",
        ),
        Loophole((6,), "the normalizer squad treats 3.14 as 314 and C++ as C"),
        Loophole((7,), "the last of many answer sections counts"),
        Loophole(
            (44,),
            "citations in hidden text, under other headings than References, and in a row without "
            "a claim count",
        ),
        Loophole(
            (20, 21),
            "with outcome.by=judge, the reward is as reliable as the judge",
            variants={20: ("colon",), 21: ("verdict-in-the-final-text",)},
        ),
        Loophole(
            (45,),
            "a final text that names every candidate can give a placeholder its name; the "
            "prompt of the judge requires null unless one name is asserted",
            variants={45: ("candidates-for-a-placeholder",)},
        ),
        Loophole(
            (47,),
            "instructions to the judge in a retrieved page reach the judge; the prompt marks "
            "the page as material",
            variants={47: ("instructions-in-a-page", "instructions-in-messages")},
        ),
    ),
    deviations=(
        "a judge that fails leaves the rollout unscored; the released code counts it as 0",
        "an address is compared without its scheme, its fragment and a final slash",
        "documents of a row without searches count as its results",
    ),
)
