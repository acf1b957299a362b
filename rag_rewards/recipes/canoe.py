"""CANOE: a short answer with a long one that alone leads a generator to the gold answer.

Not reproduced from the released code: it writes a backslash before each space and special character
of the long answer (re.escape), and a line break in context or long answer costs the length reward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from rag_rewards.compose import weighted
from rag_rewards.definition import ComponentInfo, HardenedSetting, Loophole, RecipeDefinition
from rag_rewards.prompts import OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.recipes.turn_settings import exact_match
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.evidence import RelativeLength
from rag_rewards.rewards.format import Format
from rag_rewards.rewards.generated_answer import FromSection, GeneratedAnswer
from rag_rewards.settings import Part, about
from rag_rewards.text.sections import SectionStyle, Tags
from rag_rewards.training.settings import Stated, Training

_CODE = "released code at c6b215c: grpo.py"
_CONFIG = "released code at c6b215c: qwen_7b_2epoch_10k.yaml"
_TRL = "released code at c6b215c: its copy of TRL, grpo_config.py and grpo_trainer.py"

OUTPUT = OutputForm(
    "<think>…</think> <long_answer>…</long_answer> <answer>…</answer>",
    "<think>{think}</think><long_answer>{long_answer}</long_answer><answer>{answer}</answer>",
    {
        "think": "The passages are about capitals of several countries.",
        "long_answer": "The capital of France is Paris, which lies on the Seine in the north of "
        "the country. About two million people live in this city.",
    },
)
PROMPT = Prompt(
    "{instruction}\n\nContext:\n\n{documents}\n\nQuestion: {question}",
    untitled="{text}",
    instruction="Answer the question after the context, with the help of the context alone. "
    "First reason inside <think> and </think>. Then, inside <long_answer> and </long_answer>, say "
    "in sentences what a reader without the context has to know. At last, give the answer alone, "
    "without an explanation, inside <answer> and </answer>.",
)


@dataclass(frozen=True)
class Weights:
    """The weights of the components."""

    accuracy: Annotated[float, about("weight of the short answer", _CODE)] = 1.0
    influence: Annotated[float, about("weight of the influence of the long answer", _CODE)] = 1.0
    format: Annotated[float, about("weight of the format", _CODE)] = 1.0
    length: Annotated[float, about("weight of the length of the long answer", _CODE)] = 1.0


def canoe(
    sections: SectionStyle,
    accuracy: AnswerMatch,
    influence: GeneratedAnswer,
    format: Format,
    length: RelativeLength,
    weights: Weights,
) -> Recipe:
    """Return accuracy + influence + format + length. Source: CANOE, released code."""
    tags = OUTPUT.tags(sections)
    accuracy = replace(accuracy, tags=tags)
    chat = FromSection(PROMPT, PROMPT, "long_answer", tags)
    influence = replace(influence, chat=chat, answer=accuracy)
    format = replace(format, tags=tags, filled=tags.names if format.words else ())
    length = replace(length, tags=tags)
    components = (accuracy, influence, format, length)
    total = weighted(*((getattr(weights, part.name), part) for part in components))
    return Recipe("canoe", components, total, correct=accuracy)


TRAINING = Training(
    prompts=Stated(112, f"{_CONFIG}: 7 processes with 2 prompts and 8 steps each"),
    group=Stated(7, _CONFIG),
    learning_rate=Stated(1e-6, _CONFIG),
    schedule=Stated("cosine", _CONFIG),
    warmup=Stated(0.1, _CONFIG),
    epochs=Stated(2, _CONFIG),
    kl=Stated("k3", _TRL),
    kl_weight=Stated(0.04, _TRL),
    loss_aggregation=Stated("response", _TRL),
    temperature=Stated(0.9, _TRL),
    prompt_tokens=Stated(1024, _CONFIG),
    response_tokens=Stated(1024, _CONFIG),
    notes=("the generator of the released code is the policy in training",),
)

_TAGS = Tags(OUTPUT.sections)
_INFLUENCE = GeneratedAnswer(FromSection(PROMPT, PROMPT), max_tokens=1024, name="influence")
CANOE = RecipeDefinition(
    name="canoe",
    summary="a right short answer, and a long answer from which alone a model gives it too",
    source="CANOE, released code at c6b215c",
    output=OUTPUT,
    parts={
        "sections": SectionStyle(),
        "accuracy": exact_match("accuracy"),
        "influence": Part(_INFLUENCE, prefix="", fixed=("by",)),
        "format": Format(),
        "length": RelativeLength("long_answer", _TAGS),
        "weights": Weights(),
    },
    sources={
        "accuracy.normalizer": "ours: the released code compares the text as it is",
        "decode.temperature": "ours: 0 causes less noise; the released code: as in training, 0.9",
        "decode.max_tokens": _CONFIG,
    },
    build=canoe,
    fields=("documents", "answers", "generated_answers.influence"),
    components=(
        ComponentInfo("accuracy", "1 if the short answer is right, otherwise 0"),
        ComponentInfo(
            "influence", "1 if the generator answers right from the long answer alone, otherwise 0"
        ),
        ComponentInfo("format", "1 for the three sections in order, otherwise 0", values=(0, 1)),
        ComponentInfo(
            "length", "1 for 20% to 80% of the length of the documents, otherwise 0", values=(0, 1)
        ),
    ),
    prompt=PROMPT,
    training=TRAINING,
    hardened={
        **shared.FORM,
        **shared.LIST,
        "length.strict": HardenedSetting(
            True, (25, 27, 29), "repeated or invisible words that fill the long answer"
        ),
    },
    loopholes=(
        Loophole((1, 6, 7), "candidate lists, 314 for 3.14, and the first of many answers count"),
        Loophole((11, 25, 27), "empty sections, and repeated or invisible words, count"),
        Loophole(
            (29,),
            "any words make the long answer long enough",
            variants={29: ("made-up-words-in-the-long-answer",)},
        ),
    ),
    deviations=(
        "answers are compared after the normalizer squad, and not with math_verify",
        "the generator gets the prompt of this recipe, also for a row with another prompt",
        "the thinking must begin in the response; add <think> if the prompt ends with it",
    ),
)
