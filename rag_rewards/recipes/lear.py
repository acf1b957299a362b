"""LEAR: rational evidence, rewarded by the answers that it leads to and by its length.

No code has been released. The text after Eq. 9 names the mean of the length rewards R_fmt, which is
a misprint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from rag_rewards.compose import Mean, Sum
from rag_rewards.definition import (
    ComponentInfo,
    HardenedSetting,
    Loophole,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.prompts import OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.reward import Component, Reward
from rag_rewards.rewards.evidence import Lengths, MaskedAnswer
from rag_rewards.rewards.evidence import Part as ContextPart
from rag_rewards.rewards.format import Format
from rag_rewards.settings import Part, about
from rag_rewards.text.sections import SectionStyle, Tags
from rag_rewards.training.settings import FineTuning, Stated, Training

OUTPUT = OutputForm(
    "<reason>…</reason> <extract>…</extract> <answer>…</answer>",
    "<reason>{reason}</reason><extract>{extract}</extract><answer>{answer}</answer>",
    {
        "reason": "The passages are about capitals of several countries.",
        "extract": "Paris is the capital of France.",
    },
)
# Source: LEAR, Table 10, including its steps, its order and the answer from own knowledge.
_ROLE = "You are an expert in reasoning over texts and in extracting knowledge from them."
_EXTRACT = (
    "combine what is useful in the passages into one connected text. Put it into a logical order "
    "and keep it concise."
)
PROMPT = Prompt(
    "{instruction}\n\nQuestion: {question}\n\nPassages:\n\n{documents}",
    instruction=f"{_ROLE} Read the question and the passages with care, reason how the passages "
    "lead to the answer, and extract the relevant information, which may serve to answer the "
    "question. Take these steps:\n"
    "1. Between <reason> and </reason>, first analyze the question: which information does it ask "
    "for, and which concepts, entities and relations are essential? Then analyze the passages: "
    "read each passage with care and name the sentences or phrases that help to answer the "
    "question.\n"
    f"2. Between <extract> and </extract>, {_EXTRACT}\n"
    "3. Between <answer> and </answer>, give a short answer to the question, based on the "
    "passages, your reasoning and the extract. If none of these helps, answer from what you know.",
)

# Source: LEAR, Tables 7 (qa), 8 (closed-book) and 9 (cot). The paper states no prompt for vanilla
# evidence (section 2.2); extract-only is the prompt above with its second step only.
_ASSISTANT = "You are a helpful assistant. Your task:\n"
BASELINES = {
    "qa": Prompt(
        "{instruction}\n\nQuestion: {question}\n\nDocument: {documents}\n\nAnswer:",
        untitled="{text}",
        instruction=f"{_ASSISTANT}1. Read the question, and answer it with the documents below.\n"
        "2. If the documents do not help, answer it from what you know.",
    ),
    "closed-book": Prompt(
        "{instruction}\n\nQuestion: {question}\n\nAnswer:",
        instruction=f"{_ASSISTANT}1. Read the question, and then answer it directly.\n"
        "2. The answer must be short and come from what you know.",
    ),
    "cot": Prompt(
        "{instruction}\n\nQuestion: {question}\n\nDocument: {documents}\n\n"
        "Let's think step by step.",
        untitled="{text}",
        instruction=f"{_ASSISTANT}Read the documents, and answer the question.",
    ),
    "extract-only": Prompt(
        "{instruction}\n\nQuestion: {question}\n\nPassages:\n\n{documents}",
        instruction=f"{_ROLE} Read the question and the passages with care. Between <extract> and "
        f"</extract>, {_EXTRACT} Write nothing else.",
    ),
}

Context = Literal["r", "e", "f"]
_PARTS: dict[Context, ContextPart] = {"r": "rationale", "e": "evidence", "f": "full"}


@dataclass(frozen=True)
class Weights:
    """The weights of the components."""

    answer: Annotated[float, about("weight of the answers", "LEAR, section 4.1")] = 0.8
    length: Annotated[float, about("weight of the lengths", "LEAR, section 4.1")] = 0.1
    format: Annotated[float, about("weight of the format", "LEAR, section 4.1")] = 0.1


@dataclass(frozen=True)
class Counted:
    """The answers that count."""

    answers: Annotated[
        tuple[Context, ...],
        about(
            "answers in the mean: r (answer_rationale), e (answer_evidence), f (answer_full)",
            "LEAR, Eq. 9, Table 6",
            min_length=1,
        ),
    ] = ("r", "e", "f")
    gated: Annotated[
        bool,
        about(
            "length is 0 unless answer_evidence is greater than 0",
            "ours: off, as published",
            key="length.gated",
        ),
    ] = False


def lear(
    sections: SectionStyle,
    counted: Counted,
    answer: MaskedAnswer,
    length: Lengths,
    format: Format,
    weights: Weights,
) -> Recipe:
    """Return 0.8·answer + 0.1·length + 0.1·format. Source: LEAR, Eq. 9."""
    tags = OUTPUT.tags(sections)
    answers = {
        letter: replace(
            answer,
            part=part,
            tags=tags,
            required=letter in counted.answers or (letter == "e" and counted.gated),
            name=f"answer_{part}",
            words=format.words,
        )
        for letter, part in _PARTS.items()
    }
    mean = Mean(tuple(answers[letter] for letter in dict.fromkeys(counted.answers)), "answer")
    length = replace(length, tags=tags, gated_by=answers["e"] if counted.gated else None)
    format = replace(format, tags=tags, filled=tags.names)
    total = Sum(((weights.answer, mean), (weights.length, length), (weights.format, format)))
    parts = [Component(length, name) for name in ("length_rationale", "length_evidence")]
    components: tuple[Reward, ...] = (mean, *answers.values(), length, *parts, format)
    return Recipe("lear", components, total, correct=answers["f"])


_PAPER = "LEAR, section 4.1"
_STUDY = "LEAR, section 2.2"
TRAINING = Training(
    learning_rate=Stated(1e-6, _PAPER),
    epochs=Stated(1, _PAPER),
    kl=Stated("k3", "LEAR, section 4.1, states the weight only"),
    kl_weight=Stated(0.01, _PAPER),
    clip=Stated(0.2, _PAPER),
    loss_aggregation=Stated("response", "LEAR, Eq. 12, which has one ratio for each response"),
    std_floor=Stated(0.1, "LEAR, section 4.1"),
    sft=FineTuning(epochs=Stated(3, _STUDY), lora_rank=Stated(16, _STUDY)),
    notes=(
        "the advantage is (R − mean)/max(std, 0.1), with the population standard deviation",
        "at inference, the paper stops the generation at </extract>",
        "the models that answer from the evidence are fine-tuned with LoRA of rank 8 (section "
        "4.1): set r=8 in the script of `init sft`, whose rank of 16 is that of section 2.2",
    ),
)

_TAGS = Tags(OUTPUT.sections)
LEAR = RecipeDefinition(
    name="lear",
    summary="rewards for answers from masked contexts, for a long rationale and for short evidence",
    source="LEAR, sections 3.1 and 3.2, Eq. 4 to 9",
    output=OUTPUT,
    parts={
        "sections": SectionStyle(),
        "counted": Part(Counted(), prefix=""),
        "answer": Part(MaskedAnswer("full", _TAGS), prefix=""),
        "length": Lengths(_TAGS),
        "format": Format(),
        "weights": Weights(),
    },
    build=lear,
    fields=("documents", "answers", "masked_answers"),
    components=(
        ComponentInfo("answer", "mean of answer_rationale, answer_evidence and answer_full"),
        ComponentInfo(
            "answer_rationale",
            "F1 of the answer that the model gives from the question, the passages and the "
            "rationale (section reason)",
        ),
        ComponentInfo(
            "answer_evidence",
            "F1 of the answer that the model gives from the question and the evidence "
            "(section extract)",
        ),
        ComponentInfo("answer_full", "F1 of the answer in the response (section answer)"),
        ComponentInfo("length", "mean of length_rationale and length_evidence"),
        ComponentInfo(
            "length_rationale",
            "near 1 if the rationale is much longer than the evidence, near 0 if it is much "
            "shorter",
        ),
        ComponentInfo(
            "length_evidence",
            "1 if the evidence is at least 90% shorter than the passages, otherwise less",
        ),
        ComponentInfo(
            "format",
            "1 if the response consists of exactly the required sections, in order; otherwise 0",
            values=(0, 1),
        ),
    ),
    prompt=PROMPT,
    baselines=BASELINES,
    training=TRAINING,
    data=TrainingData(("nq",), "LEAR, section 4.1: 79.1k questions, 5 passages of 100 words"),
    hardened={
        **shared.FORM,
        **shared.ANSWER,
        "length.gated": HardenedSetting(
            True, (23, 24), "a short extract from which the policy does not get the correct answer"
        ),
        "length.strict": HardenedSetting(
            True,
            (23, 25, 26, 27, 28),
            "a rationale that is longer because of repetition or hidden text; a copy of the "
            "documents without spaces between the words",
        ),
    },
    loopholes=(
        Loophole(
            (6, 27, 28),
            "the normalizer squad treats 3.14 as 314; invisible words make a rationale longer, and "
            "hidden text counts",
        ),
        Loophole((7,), "the first of many answer sections counts"),
        Loophole((24,), "an extract that contains only '.' earns the full length reward"),
        Loophole(
            (23,),
            "a copy of the documents without spaces between the words counts as short evidence",
        ),
        Loophole(
            (13,),
            "a well-formed wrong response earns the format reward, as the paper defines it",
            variants={13: ("no-content",)},
        ),
        Loophole(
            (1, 2, 3, 9, 10, 30),
            "a list, a negation or a quotation has an F1 above 0, as the paper defines it",
        ),
        Loophole(
            (25, 29),
            "a longer rationale of new words earns up to 0.05 more, as the paper defines it",
            variants={25: ("short-phrases", "seven-words"), 29: ("made-up-words",)},
        ),
        Loophole(
            (31,),
            "stating the answer in the rationale increases answer_rationale, as the paper "
            "defines it",
            variants={31: ("answer-in-reason",)},
        ),
    ),
)
