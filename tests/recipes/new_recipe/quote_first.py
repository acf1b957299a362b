"""Quote First: the answer, and a quotation of the document that supports it.

`tests/recipes/test_new_recipe.py` adds this invented recipe to a copy of the package.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from rag_rewards.compose import Sum
from rag_rewards.definition import (
    ComponentInfo,
    HardenedSetting,
    Loophole,
    Preset,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.prompts import OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.format import Format
from rag_rewards.settings import Part, about
from rag_rewards.text.sections import SectionStyle
from rag_rewards.training.settings import Stated, Training

OUTPUT = OutputForm(
    "<quote>…</quote> <answer>…</answer>",
    "<quote>{quote}</quote><answer>{answer}</answer>",
    {"quote": "Paris is the capital of France."},
)
PROMPT = Prompt(
    "Quote the sentence that answers the question inside <quote> and </quote>. Then write the "
    "answer inside <answer> and </answer>.\n\n{documents}\n\nQuestion: {question}",
    document="Source {label}: {text}",
    untitled="Source {label}: {text}",
)


@dataclass(frozen=True)
class Weights:
    """The weights of the components."""

    format: Annotated[float, about("weight of the format", "Quote First, section 3", ge=0)] = 0.5


def quote_first(
    sections: SectionStyle, format: Format, accuracy: AnswerMatch, weights: Weights
) -> Recipe:
    """Return accuracy + 0.5·format. Source: Quote First, section 3."""
    tags = OUTPUT.tags(sections)
    format, accuracy = replace(format, tags=tags, filled=tags.names), replace(accuracy, tags=tags)
    total = Sum(((1.0, accuracy), (weights.format, format)))
    return Recipe("quote-first", (accuracy, format), total, correct=accuracy)


QUOTE_FIRST = RecipeDefinition(
    name="quote-first",
    summary="an answer, and a quotation of its document",
    source="Quote First, section 3",
    output=OUTPUT,
    parts={
        "sections": SectionStyle(),
        "format": Format(),
        "accuracy": Part(AnswerMatch(metric="judge"), fixed=("reads",)),
        "weights": Weights(),
    },
    sources={"accuracy.metric": "Quote First, section 2"},
    build=quote_first,
    fields=("answers", "verdicts.accuracy (accuracy.metric=judge)"),
    components=(
        ComponentInfo("accuracy", "the answer is right", values=(0, 1)),
        ComponentInfo("format", "a quotation and an answer, and nothing else", values=(0, 1)),
    ),
    prompt=PROMPT,
    training=Training(
        group=Stated(5, "Quote First, section 4"),
        learning_rate=Stated(7e-6, "Quote First, section 4"),
        temperature=Stated(0.85, "Quote First, section 4"),
        notes=("the quotations are not compared with the documents",),
    ),
    data=TrainingData(
        ("hotpotqa",),
        "Quote First, section 4",
        {"quote-first-train": Preset({"hotpotqa": 1}, "train")},
    ),
    model_free={"accuracy.metric": "exact"},
    hardened={
        "sections.repeated": HardenedSetting("missing", (7,), "many answer sections, one right"),
        "format.words": HardenedSetting(True, (16, 24), "an answer that is '.' or a citation"),
        "accuracy.normalizer": HardenedSetting("unicode", (4, 6, 27, 28), "3.14 is not 314"),
        "accuracy.undecided": HardenedSetting("wrong", (1, 2, 3), "a list, with another metric"),
        "accuracy.extra": HardenedSetting("reject", (1,), "a list of every candidate answer"),
    },
    rejected=shared.REJECTED,
    loopholes=(
        Loophole((7,), "of many answer sections the first counts"),
        Loophole((16, 24), "an answer without a word earns the format's weight"),
        Loophole((6,), "squad equates 3.14 with 314"),
        Loophole(
            (13,),
            "a well-formed wrong answer earns the weight of the format: by definition",
            is_open=True,
        ),
    ),
    deviations=("white space between the sections is allowed",),
)
