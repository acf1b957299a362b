"""ARENA: format, accuracy, relevance and a bonus for all three; and its naive baseline.

Deviations from the authors' released code: `format` allows white space around and between the
sections and rejects a trailing line (theirs the other way round; the paper says exactly three
sections); ids may be strings; booleans are no ids; an empty answer equals nothing.
"""

from __future__ import annotations

from typing import Annotated

from rag_rewards.blueprints import Blueprint, Flip, Recipe
from rag_rewards.compose import AllOnes, Sum
from rag_rewards.recipes import shared
from rag_rewards.rewards.answer import AnswerMatch, Metric
from rag_rewards.rewards.format import Format
from rag_rewards.rewards.relevance import Relevance
from rag_rewards.settings import Settings, about
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.text.sections import Tags


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


def arena(settings: Arena = Arena()) -> Recipe:
    """format + accuracy + relevance + bonus, weights 1. Source: ARENA, section 3.3."""
    tags = Tags(("relevance", "analysis", "answer"), settings.sections.style())
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


def naive_grpo(settings: NaiveGrpo = NaiveGrpo()) -> Recipe:
    """format + accuracy over think and answer tags. Source: ARENA, section 4.2 (baseline)."""
    tags = Tags(("think", "answer"), settings.sections.style())
    format_ = Format(tags, ("answer",) if settings.format.words else (), settings.format.words)
    accuracy = AnswerMatch(tags=tags, **settings.accuracy.options())  # type: ignore[arg-type]
    total = Sum(((1.0, format_), (1.0, accuracy)))
    return Recipe("naive-grpo", (format_, accuracy), total, correct=accuracy, settings=settings)


_TAGS = Flip("missing", (7, 12), "many answer sections, one right; nested tags")
_WORDS = Flip(True, (11, 24), "empty sections, or '.', that collect format reward")
_UNICODE = Flip(
    "unicode", (4, 6, 27, 28), "3.14 is not 314, C++ not C; invisible characters change nothing"
)
_EXTRA = Flip("reject", (1,), "a list that names every candidate")

ARENA = Blueprint(
    name="arena",
    summary="format, accuracy, named evidence, and a bonus for all three",
    source="ARENA, section 3.3",
    output="<relevance>[ids]</relevance> <analysis>…</analysis> <answer>…</answer>",
    settings=Arena,
    build=arena,
    fields=("supporting", "answers"),
    hardened={
        "sections.repeated": _TAGS,
        "format.words": _WORDS,
        "accuracy.normalizer": _UNICODE,
        "accuracy.extra": _EXTRA,
        "relevance.min_precision": Flip(0.5, (17,), "listing every document for the half point"),
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
    training=(
        "KL: k2 = ½(log π_ref − log π)², β unset in the code (0.04 by default); clip 0.2",
        "7 rollouts, 256 prompts a batch, learning rate 3e-6 cosine, warm-up 0.1, one epoch",
        "temperature 0.9, completion 256 tokens",
    ),
)

NAIVE_GRPO = Blueprint(
    name="naive-grpo",
    summary="format and accuracy alone: ARENA's baseline",
    source="ARENA, section 4.2",
    output="<think>…</think> <answer>…</answer>",
    settings=NaiveGrpo,
    build=naive_grpo,
    fields=("answers",),
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
