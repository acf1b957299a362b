"""LEAR: rational evidence, rewarded by the answers that it leads to and by its length.

No code has been released. The text after Eq. 9 names the mean of the length rewards R_fmt, which is
a misprint.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from rag_rewards.compose import Mean, Sum
from rag_rewards.definition import (
    ChangedDefault,
    ComponentInfo,
    HardenedSetting,
    Loophole,
    Recipe,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.errors import SettingError
from rag_rewards.prompts import OutputForm, Prompt
from rag_rewards.recipes import shared
from rag_rewards.reward import Component, Reward
from rag_rewards.rewards.evidence import Lengths, MaskedAnswer, Part
from rag_rewards.rewards.format import Format
from rag_rewards.rewards.length import LengthUnit, length_function, with_digest
from rag_rewards.settings import Settings, about
from rag_rewards.text.normalize import NormalizerName
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
_PARTS: dict[Context, Part] = {"r": "rationale", "e": "evidence", "f": "full"}


class Weights(Settings, frozen=True):
    answer: Annotated[float, about("weight of the answers", "paper, section 4.1")] = 0.8
    length: Annotated[float, about("weight of the lengths", "paper, section 4.1")] = 0.1
    format: Annotated[float, about("weight of the format", "paper, section 4.1")] = 0.1


class FormatSettings(Settings, frozen=True):
    words: Annotated[bool, about("every section must contain a letter or digit")] = False


class Length(Settings, frozen=True):
    unit: Annotated[
        LengthUnit,
        about(
            "unit of lengths; auto: tokens if length.tokenizer is set, otherwise words, where a "
            "character of a script without spaces (Chinese, Japanese, Thai, …) is a word"
        ),
    ] = "auto"
    tokenizer: Annotated[
        str | None,
        about("tokenizer.json or its folder, to count tokens; the signature adds its digest"),
    ] = None
    tau: Annotated[
        float,
        about(
            "τ, the slope of length_rationale",
            "tuned over 0.1, 0.2, 0.5, 1.0; choice not stated",
            gt=0,
        ),
    ] = 0.5
    gamma: Annotated[
        float,
        about(
            "γ, the exponent of length_evidence",
            "tuned over 0.1, 0.3, 0.5, 0.8, 1.0; choice not stated",
            ge=0,
        ),
    ] = 0.5
    omega: Annotated[
        float,
        about(
            "ω, the minimum compression for a length_evidence of 1",
            "paper, section 4.1",
            ge=0,
            le=1,
        ),
    ] = 0.9
    gated: Annotated[bool, about("length is 0 unless answer_evidence is greater than 0")] = False
    distinct: Annotated[
        bool, about("do not count repeated words and words of the documents as rationale")
    ] = False
    separated: Annotated[
        bool,
        about("count the words of an extract also if no space separates them, as in of_the_city"),
    ] = False


class Decode(Settings, frozen=True):
    temperature: Annotated[
        float,
        about(
            "sampling temperature of masked answers; the paper samples them, but 0 causes "
            "less noise",
            ge=0,
        ),
    ] = 0.0
    max_tokens: Annotated[int, about("maximum number of tokens of a masked answer", ge=1)] = 64


class Lear(Settings, frozen=True):
    """Settings of LEAR."""

    sections: shared.Sections = shared.Sections()
    answers: Annotated[
        tuple[Context, ...],
        about(
            "answers in the mean: r (answer_rationale), e (answer_evidence), f (answer_full)",
            "paper, Eq. 9, Table 6",
            min_length=1,
        ),
    ] = ("r", "e", "f")
    mode: Annotated[
        Literal["generate", "likelihood"],
        about(
            "value of an answer; generate: F1 of the generated answer; likelihood: likelihood "
            "of the gold answer",
            "paper, section 3.1: generate",
        ),
    ] = "generate"
    normalizer: Annotated[NormalizerName, about("text normalizer")] = "squad"
    fold_accents: Annotated[bool, about("with the normalizer unicode, read São as Sao")] = False
    numbers: Annotated[bool, about("with the normalizer unicode, read 1 million as 1,000,000")] = (
        False
    )
    dates: Annotated[
        bool, about("with the normalizer unicode, read 5 March 1999 as 1999-03-05")
    ] = False
    visible: Annotated[
        bool,
        about("in the rationale, only what a reader sees counts"),
    ] = False
    undecided: Annotated[
        Literal["match", "wrong"],
        about(
            "match: the F1 of an answer counts, as published; wrong: an answer is right only if "
            "every word of it is explained, and otherwise wrong",
            "paper, Eq. 5: match",
        ),
    ] = "match"
    decode: Decode = Decode()
    length: Length = Length()
    format: FormatSettings = FormatSettings()
    weights: Weights = Weights()


def lear(settings: Lear) -> Recipe:
    """Return 0.8·answer + 0.1·length + 0.1·format. Source: LEAR, Eq. 9.

    Raises SettingError for a tokenizer that is required, missing, or never used.
    """
    settings = _with_tokenizer_digest(settings)
    tags = OUTPUT.tags(settings.sections.style())
    answers = {
        letter: MaskedAnswer(
            part,
            tags,
            settings.mode,
            letter in settings.answers or (letter == "e" and settings.length.gated),
            settings.normalizer,
            f"answer_{part}",
            settings.fold_accents,
            settings.numbers,
            settings.dates,
            settings.decode.temperature,
            settings.decode.max_tokens,
            settings.format.words,
            undecided=settings.undecided,
        )
        for letter, part in _PARTS.items()
    }
    counted = tuple(answers[letter] for letter in dict.fromkeys(settings.answers))
    answer = Mean(counted, "answer")
    length = Lengths(
        tags,
        settings.length.tau,
        settings.length.gamma,
        settings.length.omega,
        settings.length.unit,
        settings.length.tokenizer,
        gated_by=answers["e"] if settings.length.gated else None,
        distinct=settings.length.distinct,
        separated=settings.length.separated,
        visible=settings.visible,
    )
    format_ = Format(tags, tags.names, settings.format.words)
    weights = settings.weights
    total = Sum(((weights.answer, answer), (weights.length, length), (weights.format, format_)))
    parts = [Component(length, name) for name in ("length_rationale", "length_evidence")]
    components: tuple[Reward, ...] = (answer, *answers.values(), length, *parts, format_)
    return Recipe("lear", components, total, correct=answers["f"], settings=settings)


def _with_tokenizer_digest(settings: Lear) -> Lear:
    """Return the settings with the digest of their tokenizer, after a check of the unit."""
    unit, tokenizer = settings.length.unit, settings.length.tokenizer
    try:
        length_function(unit, tokenizer)
        if not tokenizer:
            return settings
        length = msgspec.structs.replace(settings.length, tokenizer=with_digest(tokenizer))
    except SettingError as error:
        raise SettingError(f"recipe lear: setting length.tokenizer: {error}") from None
    return msgspec.structs.replace(settings, length=length)


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

LEAR = RecipeDefinition(
    name="lear",
    summary="rewards for answers from masked contexts, for a long rationale and for short evidence",
    source="LEAR, sections 3.1 and 3.2, Eq. 4 to 9",
    output=OUTPUT,
    settings=Lear,
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
        "sections.repeated": HardenedSetting(
            "missing", (7, 12), "many answer sections, one of them right"
        ),
        "format.words": HardenedSetting(True, (11, 24), "sections that contain only '.'"),
        "normalizer": HardenedSetting("unicode", (4, 6, 27, 28), "matching 3.14 with 314"),
        "visible": HardenedSetting(True, (27, 28), "hidden text in a longer rationale"),
        "undecided": shared.UNDECIDED,
        "length.gated": HardenedSetting(
            True, (23, 24), "a short extract from which the policy does not get the correct answer"
        ),
        "length.distinct": HardenedSetting(
            True, (25, 26), "a rationale that is longer because of repetition"
        ),
        "length.separated": HardenedSetting(
            True, (23,), "a copy of the documents without spaces between the words"
        ),
    },
    loopholes=(
        Loophole(
            (6, 27, 28),
            "the normalizer squad treats 3.14 as 314; invisible words make a rationale longer, and "
            "hidden text counts",
            is_closed=True,
        ),
        Loophole((7,), "the first of many answer sections counts", is_closed=True),
        Loophole(
            (24,), "an extract that contains only '.' earns the full length reward", is_closed=True
        ),
        Loophole(
            (23,),
            "a copy of the documents without spaces between the words counts as short evidence",
            is_closed=True,
        ),
        Loophole(
            (13,),
            "a well-formed wrong response earns the format reward, as the paper defines it",
            variants={13: ("no-content",)},
        ),
        Loophole(
            (1, 2, 3, 9, 10, 30),
            "a list, a negation or a quotation has an F1 above 0, as the paper defines it",
            is_closed=True,
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
    changed_defaults=(
        ChangedDefault("0.3.0", "length.unit", default="words", hardened="words"),
        ChangedDefault("0.3.0", "length.tokenizer", default=None, hardened=None),
        ChangedDefault("0.4.0", "length.separated", default=False, hardened=False),
        ChangedDefault("0.8.0", "visible", default=False, hardened=False),
        ChangedDefault("0.8.0", "undecided", default="match", hardened="wrong"),
    ),
)
