"""HiPRAG: Search-R1's format reward, and the share of steps that searched only where needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from rag_rewards.compose import Mapped, weighted
from rag_rewards.definition import ComponentInfo, HardenedSetting, Loophole, RecipeDefinition
from rag_rewards.prompts import CLOSED_BOOK_LAYOUT, OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.recipes.turn_settings import HARDENED, TURNS
from rag_rewards.reward import Component
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.search import MalformedTurns
from rag_rewards.rewards.steps import StepComponents, step_reward
from rag_rewards.settings import Part, about
from rag_rewards.training.settings import Stated, Training
from rag_rewards.turns.trajectory import Reading

_CODE = "HiPRAG, released code at 3e64036: qa_em_format.py"
_SCRIPT = "HiPRAG, released code at 3e64036: train_grpo_format.sh"

OUTPUT = OutputForm(
    "<think><step>…</step> …</think> <answer>…</answer>",
    examples={
        "think": "<step><reasoning>I know it.</reasoning><conclusion>Paris.</conclusion></step>"
    },
)
PROMPT = Prompt(
    CLOSED_BOOK_LAYOUT,
    instruction="Answer the question below in steps. All steps are inside one section <think> and "
    "</think>, and each one is inside <step> and </step>. A step solves one part of the question. "
    "It begins with what you know and what you lack, inside <reasoning> and </reasoning>. Only if "
    "you lack a fact, or if it can have changed, search for it: write a query inside <search> and "
    "</search>. The results appear between <information> and </information>. The step ends with "
    "what follows for the question, inside <conclusion> and </conclusion>. After the thinking, "
    "give the answer alone inside <answer> and </answer>.",
)


@dataclass(frozen=True)
class StepWeights:
    """The weights of the form and of the good steps."""

    structure: Annotated[
        float, about("weight of a complete form", f"{_SCRIPT}: structure_format_score", ge=0, le=1)
    ] = 0.2
    process: Annotated[float, about("weight of the share of good steps", _CODE, ge=0)] = 0.4


def hiprag(
    reading: Reading,
    malformed: MalformedTurns,
    answer: AnswerMatch,
    steps: StepComponents,
    weights: StepWeights,
) -> Recipe:
    """Return the reward of an answer, its form and its steps, at the last turn. Source: HiPRAG."""
    steps = replace(steps, answer=answer, reading=reading)
    malformed = replace(malformed, reading=reading)
    parts = tuple(Component(steps, name) for name in ("outcome", "format", "steps"))
    structure, process = weights.structure, weights.process
    text = (
        f"outcome·(1 − (1 − format)·{structure:g}) + (1 − outcome)·format·{structure:g} + "
        f"{process:g}·outcome·format·steps"
    )
    function = partial(step_reward, structure=structure, process=process)
    values = (*parts[:2], replace(parts[2], default=0.0))
    total = weighted((1, Mapped(function, values, "", text)), (1, malformed))
    return Recipe("hiprag", (*parts, malformed), total, correct=parts[0])


TRAINING = Training(
    prompts=Stated(512, _SCRIPT),
    group=Stated(5, _SCRIPT),
    learning_rate=Stated(5e-7, _SCRIPT),
    warmup=Stated(0.285, _SCRIPT),
    kl=Stated("k3", _SCRIPT),
    kl_weight=Stated(0.001, _SCRIPT),
    temperature=Stated(1.0, _SCRIPT),
    prompt_tokens=Stated(8192, _SCRIPT),
    response_tokens=Stated(500, _SCRIPT),
    notes=("at most 4 turns, with 3 documents and 500 tokens per search",),
)

HIPRAG = RecipeDefinition(
    name="hiprag",
    summary="a right answer, its form, and the share of steps that searched only where needed",
    source="HiPRAG, arXiv 2510.07794 and released code at 3e64036",
    output=OUTPUT,
    parts={
        **TURNS,
        "answer": Part(
            AnswerMatch("outcome", metric="substring"),
            prefix="accuracy",
            fixed=("reads",),
            values={"metric": ("exact", "substring"), "undecided": ("match", "wrong")},
        ),
        "steps": Part(StepComponents(), prefix=""),
        "weights": StepWeights(),
    },
    sources={"accuracy.metric": _CODE},
    build=hiprag,
    fields=("answers", "turns", "verdicts.step:i"),
    components=(
        ComponentInfo("outcome", "1 if the answer contains a gold answer, otherwise 0"),
        ComponentInfo("format", "1 if the form is complete, otherwise 0", values=(0, 1)),
        ComponentInfo(
            "steps",
            "share of the steps that searched only where needed; missing for a wrong answer and "
            "for an incomplete form, whose steps are not judged",
        ),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    training=TRAINING,
    hardened={
        **HARDENED,
        **shared.LIST,
        "distinct_steps": HardenedSetting(True, (12,), "good steps that are repeated"),
    },
    loopholes=(
        Loophole((1, 2, 3, 6, 28), "an answer that contains a gold answer counts as right"),
        Loophole((7,), "the last of many answer sections counts"),
        Loophole((12,), "good steps that are repeated raise the share of good steps"),
        Loophole(
            (13,),
            "a wrong answer in a complete form earns the weight of the form, as in the paper",
            variants={13: ("no-content",)},
        ),
        Loophole(
            (21, 26),
            "the share of good steps is as reliable as the judge; right steps of no use raise it",
            variants={21: ("verdict-in-a-step",), 26: ("steps-without-use",)},
        ),
    ),
    deviations=(
        "good steps are divided by all steps, as in the paper; the released code divides by the "
        "searches, and without one adds the whole bonus",
        "with unaided.by=judge, the judge answers the query of a step itself; in the released "
        "code, the policy does, and a judge compares its answer with the conclusion",
        "a judge that fails leaves the rollout unscored; the released code counts the step as good",
        "queries and results are in the tags of the dialect, such as <information> in place of "
        "<context>; no section may be empty",
    ),
)
