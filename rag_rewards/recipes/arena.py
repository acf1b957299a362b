"""ARENA: format, accuracy, relevance and a bonus for all three; and its naive baseline.

Deviations from the authors' released code: `format` allows white space around and between the
sections and rejects a trailing line (theirs the other way round; the paper says exactly three
sections); ids may be strings; booleans are no ids; an empty answer equals nothing.
"""

from __future__ import annotations

from typing import Annotated

from rag_rewards.compose import AllOnes, Sum
from rag_rewards.definition import (
    ComponentInfo,
    HardenedSetting,
    Preset,
    Recipe,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.output_form import OutputForm
from rag_rewards.prompts import Prompt
from rag_rewards.recipes import shared
from rag_rewards.rewards.answer import AnswerMatch, Metric
from rag_rewards.rewards.document_relevance import Relevance
from rag_rewards.rewards.format import Format
from rag_rewards.settings import Settings, about
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.training.settings import Stated, Training

OUTPUT = OutputForm(
    "<relevance>[ids]</relevance> <analysis>…</analysis> <answer>…</answer>",
    "<relevance>{relevance}</relevance><analysis>{analysis}</analysis><answer>{answer}</answer>",
    {"relevance": "[1]", "analysis": "Some analysis."},
)
NAIVE_OUTPUT = OutputForm("<think>…</think> <answer>…</answer>")

# Source: ARENA, Table 1 and appendix B: numbered references without titles, three sections.
PROMPT = Prompt(
    "Answer the question from the numbered references. Reply with exactly three sections, in this "
    "order, and with nothing outside them.\n"
    "<relevance>[the numbers of the references that help, and no others, as in [1, 5]]</relevance>"
    "\n"
    "<analysis>how these references lead to the answer, with the number of the reference behind "
    "each claim</analysis>\n"
    "<answer>the answer alone: a word or a short phrase, unexplained</answer>\n\n"
    "<question>{question}</question>\n\n"
    "<references>\n{documents}\n</references>",
    document="[{label}] {text}",
)


class FormatSettings(Settings, frozen=True):
    words: Annotated[bool, about("analysis and answer must hold a letter or digit")] = False


class Accuracy(shared.Accuracy, frozen=True):
    metric: Annotated[
        Metric,
        about("how the answer is compared", "paper, section 3.3; F1 and judge in section 5.3"),
    ] = "exact"
    normalizer: Annotated[NormalizerName, about("text normaliser", "authors' code")] = "triviaqa"


class RelevanceSettings(Settings, frozen=True):
    min_precision: Annotated[
        float,
        about(
            "share of listed ids that must support for the half",
            "paper, section 3.3: any",
            ge=0,
            le=1,
        ),
    ] = 0.0


class Bonus(Settings, frozen=True):
    value: Annotated[float, about("added when all three are 1", "paper, section 3.3")] = 10.0


class Arena(Settings, frozen=True):
    """ARENA's settings."""

    sections: shared.Sections = shared.Sections()
    format: FormatSettings = FormatSettings()
    accuracy: Accuracy = Accuracy()
    relevance: RelevanceSettings = RelevanceSettings()
    bonus: Bonus = Bonus()


def arena(settings: Arena) -> Recipe:
    """format + accuracy + relevance + bonus, weights 1. Source: ARENA, section 3.3."""
    tags = OUTPUT.tags(settings.sections.style())
    format_ = Format(
        tags, ("analysis", "answer") if settings.format.words else (), settings.format.words
    )
    accuracy = AnswerMatch(tags=tags, **settings.accuracy.options())  # type: ignore[arg-type]
    relevance = Relevance(tags, settings.relevance.min_precision)
    bonus = AllOnes((format_, accuracy, relevance), settings.bonus.value, "bonus")
    components = (format_, accuracy, relevance, bonus)
    total = Sum(tuple((1.0, part) for part in components))
    return Recipe("arena", components, total, correct=accuracy, settings=settings)


class NaiveGrpo(Settings, frozen=True):
    """Settings of the naive baseline."""

    sections: shared.Sections = shared.Sections()
    format: FormatSettings = FormatSettings()
    accuracy: Accuracy = Accuracy()


def naive_grpo(settings: NaiveGrpo) -> Recipe:
    """format + accuracy over think and answer tags. Source: ARENA, section 4.2 (baseline)."""
    tags = NAIVE_OUTPUT.tags(settings.sections.style())
    format_ = Format(tags, ("answer",) if settings.format.words else (), settings.format.words)
    accuracy = AnswerMatch(tags=tags, **settings.accuracy.options())  # type: ignore[arg-type]
    total = Sum(((1.0, format_), (1.0, accuracy)))
    return Recipe("naive-grpo", (format_, accuracy), total, correct=accuracy, settings=settings)


_TAGS = HardenedSetting("missing", (7, 12), "many answer sections, one right; nested tags")
_WORDS = HardenedSetting(True, (11, 24), "empty sections, or '.', that collect format reward")
_UNICODE = HardenedSetting(
    "unicode", (4, 6, 27, 28), "3.14 is not 314, C++ not C; invisible characters change nothing"
)
_EXTRA = HardenedSetting("reject", (1,), "a list that names every candidate")

_FORMAT = ComponentInfo("format", "the sections, in their order and nothing else", values=(0, 1))
_ACCURACY = ComponentInfo("accuracy", "the answer section is a gold answer", values=(0, 1))

_PAPER, _CODE = "ARENA, implementation details", "ARENA, authors' code"
TRAINING = Training(
    prompts=Stated(256, _PAPER),
    group=Stated(7, _PAPER),
    learning_rate=Stated(3e-6, _PAPER),
    schedule=Stated("cosine", _PAPER),
    warmup=Stated(0.1, _PAPER),
    epochs=Stated(1, _PAPER),
    kl=Stated("k2", "ARENA, stable KL; the symbols are lost in the text, the code shows k2"),
    kl_weight=Stated(0.04, "not set in the authors' code: its trainer's default"),
    clip=Stated(0.2, _CODE),
    temperature=Stated(0.9, _PAPER),
    response_tokens=Stated(256, _CODE),
    notes=("k2 is ½(log π_ref − log π)²",),
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

ARENA = RecipeDefinition(
    name="arena",
    summary="format, accuracy, named evidence, and a bonus for all three",
    source="ARENA, section 3.3",
    output=OUTPUT,
    settings=Arena,
    build=arena,
    fields=("supporting", "answers"),
    components=(
        _FORMAT,
        _ACCURACY,
        ComponentInfo(
            "relevance",
            "named ids: none supports, some do, exactly the supporting",
            values=(0, 0.5, 1),
        ),
        ComponentInfo("bonus", "all three are 1", values=(0, 10)),
    ),
    prompt=PROMPT,
    training=TRAINING,
    data=DATA,
    hardened={
        "sections.repeated": _TAGS,
        "format.words": _WORDS,
        "accuracy.normalizer": _UNICODE,
        "accuracy.extra": _EXTRA,
        "relevance.min_precision": HardenedSetting(
            0.5, (17,), "listing every document for the half point"
        ),
    },
    loopholes=(
        "1: of several required answers a list may name every candidate (closed: hardened)",
        "6: triviaqa equates -5 with 5 and C++ with C (closed: hardened)",
        "7: of many answer sections the first counts (closed: hardened)",
        "11: empty sections collect the format point (closed: hardened)",
        "17, 18: listing every document keeps the half point (closed: hardened)",
        "13: a well-formed wrong answer keeps its format point: the paper's own definition",
        "20, 21: with accuracy.metric=judge the reward is what the judge says: see the judge",
    ),
    deviations=(
        "format allows white space around and between sections and rejects a trailing line",
        "ids may be strings; booleans are no ids; an empty answer equals nothing",
    ),
)

NAIVE_GRPO = RecipeDefinition(
    name="naive-grpo",
    summary="format and accuracy alone: ARENA's baseline",
    source="ARENA, section 4.2",
    output=NAIVE_OUTPUT,
    settings=NaiveGrpo,
    build=naive_grpo,
    fields=("answers",),
    components=(_FORMAT, _ACCURACY),
    training=TRAINING,
    data=TrainingData(DATA.datasets, DATA.source),
    hardened={
        "sections.repeated": _TAGS,
        "format.words": _WORDS,
        "accuracy.normalizer": _UNICODE,
        "accuracy.extra": _EXTRA,
    },
    loopholes=(
        "1: of several required answers a list may name every candidate (closed: hardened)",
        "6: triviaqa equates -5 with 5 and C++ with C (closed: hardened)",
        "7: of many answer sections the first counts (closed: hardened)",
        "11: empty sections collect the format point (closed: hardened)",
        "13: a well-formed wrong answer keeps its format point: the definition",
    ),
)
