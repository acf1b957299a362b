"""RLCR: a right answer, and a stated confidence that fits it (a proper scoring rule)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from rag_rewards.compose import Mapped, Product, Sum
from rag_rewards.definition import ComponentInfo, Loophole, RecipeDefinition, TrainingData
from rag_rewards.prompts import LAYOUT, OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.reward import Component
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.format import Format, StatedConfidence, calibration
from rag_rewards.settings import Part, about
from rag_rewards.text.sections import SectionStyle
from rag_rewards.training.settings import Stated, Training

_CODE = "released code at 8904bed: configs/Qwen-7B/hotpot/RLCR.yaml"

OUTPUT = OutputForm(
    "<think>…</think> <answer>…</answer> <analysis>…</analysis> <confidence>p</confidence>",
    "<think>{think}</think><answer>{answer}</answer><analysis>{analysis}</analysis>"
    "<confidence>{confidence}</confidence>",
    {"think": "Some thinking.", "analysis": "I am rather sure.", "confidence": "0.9"},
)
PROMPT = Prompt(
    LAYOUT,
    instruction="Answer the question with the help of the documents below, in four sections. First "
    "reason inside <think> and </think>. Then give the answer alone, a word or a short phrase, "
    "inside <answer> and </answer>. Then state what could be wrong with the answer or with the "
    "reasoning, without changing them, inside <analysis> and </analysis>. Finally write the "
    "probability that the answer is right, as a number from 0 to 1, inside <confidence> and "
    "</confidence>.",
)


@dataclass(frozen=True)
class Weights:
    """The weights of the components."""

    format: Annotated[float, about("weight of the format", _CODE, ge=0)] = 0.5
    accuracy: Annotated[float, about("weight of the accuracy", _CODE, ge=0)] = 0.5
    calibration: Annotated[float, about("weight of the calibration", _CODE, ge=0)] = 0.5


def rlcr(sections: SectionStyle, format: Format, accuracy: AnswerMatch, weights: Weights) -> Recipe:
    """Return .5·f + .5·f·c + .5·f·(1 − (c − p)²), 0 to 1.5. Source: RLCR, released code.

    f is the format, c the accuracy, and p the confidence.
    """
    tags = OUTPUT.tags(sections)
    filled = ("answer",) if format.words else ()
    stated = StatedConfidence(replace(format, tags=tags, filled=filled))
    accuracy = replace(accuracy, tags=tags)
    form = Component(stated, "format")
    fits = Mapped(
        calibration,
        (form, accuracy, Component(stated, "confidence", default=0.0)),
        "calibration",
        "format·(1 − (accuracy − confidence)²)",
    )
    total = Sum(
        (
            (weights.format, form),
            (weights.accuracy, Product((form, accuracy))),
            (weights.calibration, fits),
        )
    )
    components = (form, accuracy, fits, Component(stated, "confidence"))
    return Recipe("rlcr", components, total, correct=accuracy)


TRAINING = Training(
    group=Stated(32, _CODE),
    learning_rate=Stated(1e-6, _CODE),
    warmup=Stated(0.05, _CODE),
    epochs=Stated(1, _CODE),
    kl=Stated("none", _CODE),
    kl_weight=Stated(0.0, _CODE),
    temperature=Stated(0.7, _CODE),
    prompt_tokens=Stated(3072, _CODE),
    response_tokens=Stated(1536, _CODE),
    notes=("the advantages are not divided by the standard deviation (scale_rewards: false)",),
)

RLCR = RecipeDefinition(
    name="rlcr",
    summary="a right answer, and a stated confidence that fits it",
    source="RLCR, released code at 8904bed: reward_fns.py",
    output=OUTPUT,
    parts={
        "sections": SectionStyle(),
        "format": Format(),
        "accuracy": Part(AnswerMatch(), fixed=("reads",)),
        "weights": Weights(),
    },
    build=rlcr,
    fields=("answers",),
    components=(
        ComponentInfo(
            "format",
            "1 if the sections are in their order and the confidence is a number from 0 to 1",
            values=(0, 1),
        ),
        ComponentInfo("accuracy", "1 if the answer is right, otherwise 0"),
        ComponentInfo("calibration", "format·(1 − (accuracy − confidence)²)"),
        ComponentInfo("confidence", "the stated confidence; missing if it is not valid"),
    ),
    prompt=PROMPT,
    training=TRAINING,
    data=TrainingData(("hotpotqa",), _CODE),
    hardened={**shared.FORM, **shared.LIST},
    rejected=shared.REJECTED,
    loopholes=(
        Loophole(
            (1,), "with several required answers, a list of every candidate answer counts as right"
        ),
        Loophole((6,), "the normalizer squad treats 3.14 as 314 and C++ as C"),
        Loophole((24,), "the answer '.' has the format"),
        Loophole(
            (13,),
            "a well-formed wrong answer earns the weight of the format, and with the confidence 0 "
            "also that of the calibration, because the scoring rule is proper",
            variants={13: ("no-content", "wrong-with-confidence-0")},
        ),
    ),
    deviations=(
        "the response consists of the four sections, each once; the released code also accepts "
        "any text before </think>, as of thinking that begins in the prompt",
        "the first answer section outside of the thinking counts; the released code reads the "
        "last one of the whole response",
        "the confidence NaN is invalid; the released code accepts it, and the reward is NaN",
        "the order with the analysis before the answer, and the form without an analysis, are not "
        "available",
        "answers to mathematical questions are compared as texts; the released code uses "
        "math_verify",
    ),
)
