"""Ground-GRPO: hierarchical rewards for grounded statements and refusals, in two stages.

No reward code has been released. Citations are read as in Trust-Score, which is by the same group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from rag_rewards.compose import Gate, Sum
from rag_rewards.definition import (
    ComponentInfo,
    HardenedSetting,
    Loophole,
    Preset,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.prompts import LAYOUT, OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared, trust_align
from rag_rewards.reward import Component, CorrectOf, Reward
from rag_rewards.rewards.format import Format, TagCount
from rag_rewards.rewards.grounding import Grounding, Process
from rag_rewards.rewards.refusal import RefusalDetector
from rag_rewards.rollout import Rollout
from rag_rewards.settings import Part, about
from rag_rewards.text.refusal import REFUSAL
from rag_rewards.text.sections import SectionStyle
from rag_rewards.training.settings import Stated, Training

OUTPUT = OutputForm(
    "<think>…</think> <answer>statements with [n], or the refusal</answer>",
    abstention=REFUSAL,
    cites=True,
)

# Source: Ground-GRPO, section 2; the instructions of ALCE and Trust-Align, the latter's refusal.
_INSTRUCTION = (
    "Answer the question from the documents below alone; some of them may not bear on it. Think "
    "inside <think> and </think> about what they say and whether they answer it. Then, inside "
    "<answer> and </answer>, {rule} If no document holds an answer, write this sentence and "
    "nothing else there: " + REFUSAL
)
_STATEMENTS = (
    "give the answer in precise sentences, without your reasoning. Every statement of fact "
    "cites, by number, the documents that prove it, as few as will do and three at most: [1] "
    "or [1][2]."
)
_LIST = (
    "list all the answers that the documents give, separated by commas, without your "
    "reasoning. Behind each stands the number of one document that proves it: [1]."
)


def instruction(rollout: Rollout) -> str:
    """Return the instruction, which requests a list for a question with several answers."""
    rule = _LIST if rollout.answer_kind == "list" else _STATEMENTS
    return _INSTRUCTION.replace("{rule}", rule)


PROMPT = Prompt(LAYOUT, instruction=instruction)


@dataclass(frozen=True)
class ProcessTerm:
    """The weight of the reward of the reasoning."""

    weight: Annotated[
        float,
        about(
            "weight of the component process, which rewards reasoning that entails the answer or "
            "the refusal; 0: there is no such component",
            "Ground-GRPO, section 4.7: not in the main runs; Eq. 7 has the weight 1",
        ),
    ] = 0.0


def ground_grpo(
    sections: SectionStyle,
    format: Format,
    refusal: RefusalDetector,
    grounding: Grounding,
    process: ProcessTerm,
) -> Recipe:
    """Return tag_count + [format](format + refusal + exact_match + citation).

    Stage 1 has no refusal rewards. Source: Ground-GRPO, Algorithm 1 and Eq. 5.
    """
    tags = OUTPUT.tags(sections)
    tag_count = TagCount(tags)
    format = replace(format, tags=tags)
    grounding = replace(grounding, format=format, detector=refusal)
    parts: list[Reward] = [format]
    parts += [Component(grounding, name) for name in ("exact_match", "citation")]
    if grounding.refusal:
        parts.append(Component(grounding, "refusal"))
    terms = [(1.0, part) for part in parts]
    if process.weight:
        reasoning = Process(format, grounding.pattern)
        parts.append(reasoning)
        terms.append((process.weight, reasoning))
    total = Sum(((1.0, tag_count), (1.0, Gate(format, Sum(tuple(terms))))))
    name = "ground-grpo" if grounding.refusal else "ground-grpo-stage1"
    return Recipe(name, (tag_count, *parts), total, correct=CorrectOf(grounding))


_FORMAT = Format(filled=("answer",))
_PARTS = {
    "sections": SectionStyle(),
    "format": _FORMAT,
    "refusal": RefusalDetector(),
    "grounding": Part(Grounding(_FORMAT, RefusalDetector()), prefix=""),
    "process": ProcessTerm(),
}
_STAGE1 = Grounding(_FORMAT, RefusalDetector(), refusal=False)
_HARDENED = {
    **shared.FORM,
    "aggregate": HardenedSetting(
        "strict",
        (1, 17, 18, 25, 30),
        "repeating the same right sentence, also with another document each time, and a list of "
        "every candidate answer",
    ),
    **shared.NORMALIZER,
    "exact_match.counts": HardenedSetting(
        "supported",
        (1, 2, 3, 30),
        "gold answers in lists, negations and quotations, which no citation supports",
    ),
    "citation.minimal": HardenedSetting(True, (16, 17, 18), "citing every document"),
    "refusal.strict": HardenedSetting(True, (15,), "a refusal with an answer, or a quoted refusal"),
    "refusal.earned_by": HardenedSetting(
        "grounded", (), "refusing in any language, or an answer without content or citation"
    ),
}
_REJECTED = {"refusal.matcher": {"semantic": "accepts a refusal together with an answer"}}
_LOOPHOLES = (
    Loophole((1, 2, 3), "a gold answer also counts inside a list, a negation or another word"),
    Loophole(
        (2,),
        "a gold answer that a document itself denies counts in the words of this document",
        variants={2: ("entailed",)},
    ),
    Loophole((6,), "the normalizer squad treats 3.14 as 314"),
    Loophole(
        (16, 24), "an answer that contains only citation markers or '.' earns the format reward"
    ),
    Loophole(
        (17, 18),
        "citing every document, or one right document among wrong ones, counts as a correct "
        "citation",
    ),
    Loophole((25,), "every repetition of a right sentence is rewarded again"),
    Loophole(
        (11, 13),
        "tags without content earn up to 1 for tag_count and 1 for format, as the paper defines it",
        variants={11: ("empty-sections",), 13: ("no-content",)},
    ),
    Loophole(
        (31,),
        "with process.weight, reasoning that only contains the answer entails it, as the "
        "paper defines it",
        variants={31: ("answer-in-thinking",)},
    ),
)
_COMPONENTS = (
    ComponentInfo("tag_count", "share of the required tags that occur exactly once"),
    ComponentInfo(
        "format",
        "1 if the response consists of exactly the required sections, in order; otherwise 0",
        values=(0, 1),
    ),
    ComponentInfo("exact_match", "0.5 for each statement that contains a gold answer", 0.0, None),
    ComponentInfo(
        "citation",
        "for each statement with a gold answer: 0.5 if the cited documents entail it, "
        "otherwise −0.5",
        None,
        None,
    ),
)
_PROCESS = ComponentInfo(
    "process",
    "probability that the reasoning entails the answer or the refusal",
    when="process.weight",
)

_PAPER = "Ground-GRPO, section 3.1"
TRAINING = Training(
    prompts=Stated(48, f"{_PAPER}: batch of 384 rollouts, 8 per prompt"),
    group=Stated(8, _PAPER),
    learning_rate=Stated(1e-5, _PAPER),
    schedule=Stated("cosine", _PAPER),
    warmup=Stated(0.1, _PAPER),
    epochs=Stated(4, _PAPER),
    sft=trust_align.SFT,
    dpo=trust_align.DPO,
)
_DATASETS = ("asqa", "qampari", "eli5")
_DATA_SOURCE = "Ground-GRPO, section 3"
_GOLD = {"citation.judge_by": "gold"}

GROUND_GRPO = RecipeDefinition(
    name="ground-grpo",
    summary="rewards for statements with gold answers, for their citations, and for refusals "
    "(stage 2)",
    source="Ground-GRPO, section 2.2, Algorithm 1",
    output=OUTPUT,
    parts=_PARTS,
    build=ground_grpo,
    fields=("documents", "answers", "answerable", "nli"),
    components=(
        *_COMPONENTS,
        ComponentInfo(
            "refusal",
            "for an answerable question: 0.5 for an answer; for an unanswerable question: the "
            "similarity of a refusal to the gold refusal; otherwise 0",
        ),
        _PROCESS,
    ),
    prompt=PROMPT,
    baselines=trust_align.PROMPTS,
    training=TRAINING,
    data=TrainingData(
        _DATASETS,
        _DATA_SOURCE,
        {"ground-grpo-stage2": Preset(dict.fromkeys(_DATASETS, 1_000), "train", 0.5)},
    ),
    model_free=_GOLD,
    hardened=_HARDENED,
    rejected=_REJECTED,
    loopholes=(
        *_LOOPHOLES,
        Loophole((15,), "a negated or slightly changed refusal counts as a refusal"),
    ),
)

GROUND_GRPO_STAGE1 = RecipeDefinition(
    name="ground-grpo-stage1",
    summary="rewards for statements with gold answers and for their citations (stage 1)",
    source="Ground-GRPO, Eq. 1 to 5",
    output=OUTPUT,
    parts=_PARTS | {"grounding": Part(_STAGE1, prefix="", fixed=("answered", "earned_by"))},
    build=ground_grpo,
    fields=("documents", "answers", "answerable", "nli"),
    components=(*_COMPONENTS, _PROCESS),
    prompt=PROMPT,
    baselines=trust_align.PROMPTS,
    training=TRAINING,
    data=TrainingData(
        _DATASETS,
        _DATA_SOURCE,
        {"ground-grpo-stage1": Preset(dict.fromkeys(_DATASETS, 100), "train")},
        answerable_only=True,
    ),
    model_free=_GOLD,
    hardened={key: each for key, each in _HARDENED.items() if key != "refusal.earned_by"},
    rejected=_REJECTED,
    loopholes=_LOOPHOLES,
)
