"""ARENA: format, accuracy, relevance and a bonus for all three, and its naive baseline.

Deviations from the authors' code: `format` allows white space around and between the sections and
rejects a trailing line. The code does the opposite; the paper requires exactly three sections. Ids
can be strings, booleans are not ids, and an empty answer matches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rag_rewards.compose import AllOnes, Sum
from rag_rewards.definition import (
    ComponentInfo,
    HardenedSetting,
    Loophole,
    Preset,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.prompts import GoldRationale, OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.document_relevance import Relevance
from rag_rewards.rewards.format import Format
from rag_rewards.rollout import Rollout
from rag_rewards.settings import Part
from rag_rewards.text.sections import SectionStyle
from rag_rewards.training.settings import FineTuning, Stated, Training

OUTPUT = OutputForm(
    "<relevance>[ids]</relevance> <analysis>…</analysis> <answer>…</answer>",
    "<relevance>{relevance}</relevance><analysis>{analysis}</analysis><answer>{answer}</answer>",
    {"relevance": "[1]", "analysis": "Some analysis."},
)
NAIVE_OUTPUT = OutputForm("<think>…</think> <answer>…</answer>")

# Source: ARENA, Table 1 and appendix B: numbered references without titles, three sections.
PROMPT = Prompt(
    "{instruction}\n\n<question>{question}</question>\n\n<references>\n{documents}\n</references>",
    document="[{label}] {text}",
    instruction="Answer the question from the numbered references. Reply with exactly three "
    "sections, in this order, and with nothing outside them.\n"
    "<relevance>[the numbers of the references that help, and no others, as in [1, 5]]</relevance>"
    "\n"
    "<analysis>how these references lead to the answer, with the number of the reference behind "
    "each claim</analysis>\n"
    "<answer>the answer alone: a word or a short phrase, unexplained</answer>",
)


# Source: ARENA, section 4.3: the sections of NAIVE_OUTPUT, and no list of documents or citations.
NAIVE_PROMPT = replace(
    PROMPT,
    instruction="Answer the question from the numbered references. First reason inside <think> and "
    "</think>. Then give the answer alone, a word or a short phrase, unexplained, inside <answer> "
    "and </answer>. Write nothing outside these two sections.",
)


# Source: ARENA, Table 9: the question, the references, the relevant ids and the answer.
RATIONALE_PROMPT = replace(
    PROMPT,
    message="{instruction}\n\n<question>{question}</question>\n\n"
    "<references>\n{documents}\n</references>\n\n"
    "Relevant references: {gold_documents}\nAnswer: {gold_answer}",
    instruction="Write the reasoning that leads from the references to the given answer. Use only "
    "the relevant references, whose numbers are given, and name the number of the reference behind "
    "each claim. Reply with the reasoning alone, as plain text without tags.",
)


def gold_relevance(row: Rollout) -> Mapping[str, str]:
    """Return the relevance section with the supporting documents.

    >>> from rag_rewards import Document
    >>> documents = [Document(text="a"), Document(text="b")]
    >>> gold_relevance(Rollout(response="", documents=documents, supporting=(2, 1)))
    {'relevance': '[1, 2]'}
    """
    ids = [i if i.isdigit() else f'"{i}"' for i in row.supporting_in_order]
    return {"relevance": f"[{', '.join(ids)}]"}


RATIONALE = GoldRationale(
    "gold-rationale", "analysis", ("format", "accuracy", "relevance"), gold_relevance
)


def arena(
    sections: SectionStyle,
    format: Format,
    accuracy: AnswerMatch,
    relevance: Relevance,
    bonus: AllOnes,
) -> Recipe:
    """Return format + accuracy + relevance + bonus. Source: ARENA, section 3.3."""
    tags = OUTPUT.tags(sections)
    filled = ("analysis", "answer") if format.words else ()
    format = replace(format, tags=tags, filled=filled)
    accuracy, relevance = replace(accuracy, tags=tags), replace(relevance, tags=tags)
    bonus = replace(bonus, of=(format, accuracy, relevance))
    components = (format, accuracy, relevance, bonus)
    total = Sum(tuple((1.0, part) for part in components))
    return Recipe("arena", components, total, correct=accuracy)


def naive_grpo(sections: SectionStyle, format: Format, accuracy: AnswerMatch) -> Recipe:
    """Return format + accuracy. Source: ARENA, section 4.3 (baseline)."""
    tags = NAIVE_OUTPUT.tags(sections)
    format = replace(format, tags=tags, filled=("answer",) if format.words else ())
    accuracy = replace(accuracy, tags=tags)
    total = Sum(((1.0, format), (1.0, accuracy)))
    return Recipe("naive-grpo", (format, accuracy), total, correct=accuracy)


_ACCURACY_PART = Part(AnswerMatch(normalizer="triviaqa"), fixed=("reads",))
_SOURCES = {
    "accuracy.metric": "ARENA, section 3.3; F1 and judge in section 5.3",
    "accuracy.normalizer": "ARENA, authors' code",
}

_FORMAT = ComponentInfo(
    "format",
    "1 if the response consists of exactly the required sections, in order; otherwise 0",
    values=(0, 1),
)
_ACCURACY = ComponentInfo(
    "accuracy", "1 if the answer section is a gold answer, otherwise 0", values=(0, 1)
)

_PAPER, _CODE = "ARENA, appendix E", "ARENA, authors' code; the paper does not state it"
TRAINING = Training(
    prompts=Stated(256, _PAPER),
    group=Stated(7, _PAPER),
    learning_rate=Stated(3e-6, _PAPER),
    schedule=Stated("cosine", _CODE),
    warmup=Stated(0.1, _CODE),
    epochs=Stated(1, _CODE),
    kl=Stated("k2", "ARENA, section 3.2, and the authors' code"),
    kl_weight=Stated(0.04, _PAPER),
    iterations=Stated(1, _PAPER),
    clip=Stated(0.2, _PAPER),
    loss_aggregation=Stated("token", _CODE),
    temperature=Stated(0.9, _PAPER),
    response_tokens=Stated(256, _CODE),
    sft=FineTuning(
        batch=Stated(256, _CODE),
        learning_rate=Stated(1e-5, _CODE),
        schedule=Stated("linear", _CODE),
        warmup=Stated(0.1, _CODE),
        epochs=Stated(1, _CODE),
        max_grad_norm=Stated(0.3, _CODE),
    ),
    notes=("the KL estimator k2 is ½(log π_ref − log π)²",),
)
NAIVE_TRAINING = replace(
    TRAINING,
    kl=Stated("k3", "ARENA, section 4.3: the original GRPO"),
    notes=("the KL estimator of the original GRPO is k3; ARENA itself trains with k2",),
)
_SIZES = {"hotpotqa": 10_000, "2wikimultihopqa": 10_000, "musique": 5_000}
DATA = TrainingData(
    tuple(_SIZES),
    "ARENA, Table 2",
    {
        "arena-train": Preset(_SIZES, "train"),
        "arena-test": Preset(dict.fromkeys(_SIZES, 500), "test"),
    },
)

_LOOPHOLES = (
    Loophole(
        (1,), "with several required answers, a list of every candidate answer counts as right"
    ),
    Loophole((1, 2), "accuracy.metric=substring and f1 also reward lists and negations"),
    Loophole((6,), "the normalizer triviaqa treats -5 as 5 and C++ as C"),
    Loophole((7,), "the first of many answer sections counts"),
    Loophole((11,), "empty sections earn the format reward"),
)

ARENA = RecipeDefinition(
    name="arena",
    summary="rewards for format, accuracy and the listed documents, and a bonus if all are 1",
    source="ARENA, section 3.3",
    output=OUTPUT,
    parts={
        "sections": SectionStyle(),
        "format": Format(),
        "accuracy": _ACCURACY_PART,
        "relevance": Relevance(),
        "bonus": AllOnes((), 10.0, "bonus"),
    },
    sources=_SOURCES,
    build=arena,
    fields=("supporting", "answers"),
    components=(
        _FORMAT,
        _ACCURACY,
        ComponentInfo(
            "relevance",
            "1 if the listed documents are exactly the supporting documents, 0.5 if they "
            "include at least one of them, otherwise 0",
            values=(0, 0.5, 1),
        ),
        ComponentInfo(
            "bonus", "10 if the other three components are 1, otherwise 0", values=(0, 10)
        ),
    ),
    prompt=PROMPT,
    baselines={RATIONALE.prompt: RATIONALE_PROMPT},
    rationale=RATIONALE,
    training=TRAINING,
    data=DATA,
    hardened={
        **shared.FORM,
        **shared.LIST,
        "relevance.min_precision": HardenedSetting(
            0.5, (17, 18), "listing every document, which earns 0.5"
        ),
        "relevance.notation": HardenedSetting(
            "any", (), "a reward of 0 for the right documents in another notation"
        ),
    },
    rejected=shared.REJECTED,
    loopholes=(
        *_LOOPHOLES,
        Loophole((17, 18), "listing every document earns 0.5"),
        Loophole(
            (13,),
            "a well-formed wrong answer earns the format reward, as the paper defines it",
            variants={13: ("no-content",)},
        ),
        Loophole(
            (20, 21),
            "with accuracy.metric=judge, the reward is as reliable as the judge; with "
            "accuracy.metric=cascade, this applies to the answers that the judge decides",
            variants={20: ("judge-'Thought process:'",), 21: ("judge-'Rome. Verdict: yes'",)},
        ),
    ),
    deviations=(
        "format allows white space around and between the sections, and rejects a line after "
        "the last section",
        "an empty <think></think> before the sections, which the chat templates of models without "
        "thinking write, is ignored; any other text there gives a format of 0",
        "document ids can be strings but not booleans, and an empty answer matches no gold answer",
        "the judge of accuracy.metric=judge is stricter: it rejects an answer that contradicts "
        "itself or leaves a choice; that of the paper accepts one that hits any gold answer "
        "(appendix C.3)",
    ),
)

NAIVE_GRPO = RecipeDefinition(
    name="naive-grpo",
    summary="rewards for the format and the accuracy: the baseline of ARENA",
    source="ARENA, section 4.3",
    output=NAIVE_OUTPUT,
    parts={
        "sections": SectionStyle(),
        "format": Format(),
        "accuracy": _ACCURACY_PART,
    },
    sources=_SOURCES,
    build=naive_grpo,
    fields=("answers",),
    components=(_FORMAT, _ACCURACY),
    prompt=NAIVE_PROMPT,
    training=NAIVE_TRAINING,
    data=TrainingData(DATA.datasets, DATA.source),
    hardened={
        **shared.FORM,
        **shared.LIST,
    },
    rejected=shared.REJECTED,
    loopholes=(
        *_LOOPHOLES,
        Loophole(
            (13,),
            "a well-formed wrong answer earns the format reward, as the paper defines it",
            variants={13: ("no-content",)},
        ),
    ),
)
