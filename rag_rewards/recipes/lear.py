"""LEAR: rational evidence, judged by the answers it leads to and by its length.

No released code is known. The text after Eq. 9 calls the mean of the length rewards R_fmt, a slip.
"""

from __future__ import annotations

from typing import Annotated, Literal

from rag_rewards.blueprints import Blueprint, Flip, Recipe
from rag_rewards.compose import Component, Mean, Reward, Sum
from rag_rewards.recipes import shared
from rag_rewards.rewards.evidence import Lengths, MaskedAnswer, Part
from rag_rewards.rewards.format import Format
from rag_rewards.settings import Settings, about
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.text.sections import Tags

Context = Literal["r", "e", "f"]
_PARTS: dict[Context, Part] = {"r": "rationale", "e": "evidence", "f": "full"}


class Weights(Settings, frozen=True):
    answer: Annotated[float, about("weight of the answers", "paper, section 4.1")] = 0.8
    length: Annotated[float, about("weight of the lengths", "paper, section 4.1")] = 0.1
    format: Annotated[float, about("weight of the format", "paper, section 4.1")] = 0.1


class FormatSettings(Settings, frozen=True):
    words: Annotated[bool, about("every section must hold a letter or digit")] = False


class Length(Settings, frozen=True):
    tau: Annotated[
        float,
        about(
            "slope of the rationale's reward",
            "tuned over 0.1, 0.2, 0.5, 1.0; choice not stated",
            gt=0,
        ),
    ] = 0.5
    gamma: Annotated[
        float,
        about(
            "skew of the evidence's reward",
            "tuned over 0.1, 0.3, 0.5, 0.8, 1.0; choice not stated",
            ge=0,
        ),
    ] = 0.5
    omega: Annotated[
        float, about("compression from which the reward is 1", "paper, section 4.1", ge=0, le=1)
    ] = 0.9
    gated: Annotated[bool, about("length counts only where answer_evidence > 0")] = False
    distinct: Annotated[
        bool, about("the rationale's words count without what it repeats or copies")
    ] = False


class Decode(Settings, frozen=True):
    temperature: Annotated[
        float, about("of the masked answers; the paper samples: 0 is less noise", ge=0)
    ] = 0.0
    max_tokens: Annotated[int, about("of a masked answer", ge=1)] = 64


class Lear(Settings, frozen=True):
    """LEAR's settings."""

    sections: shared.Sections = shared.Sections()
    answers: Annotated[
        tuple[Context, ...],
        about(
            "which answers count: r(ationale), e(vidence), f(ull)",
            "paper, Eq. 9, Table 6",
            min_length=1,
        ),
    ] = ("r", "e", "f")
    mode: Annotated[
        Literal["generate", "likelihood"],
        about(
            "generate: F1 of sampled answers; likelihood: of the gold answer",
            "paper, section 3.1: generate",
        ),
    ] = "generate"
    normalizer: Annotated[NormalizerName, about("text normaliser")] = "squad"
    fold_accents: Annotated[bool, about("São = Sao (unicode)")] = False
    numbers: Annotated[bool, about("1 million = 1,000,000 (unicode)")] = False
    dates: Annotated[bool, about("5 March 1999 = 1999-03-05 (unicode)")] = False
    decode: Decode = Decode()
    length: Length = Length()
    format: FormatSettings = FormatSettings()
    weights: Weights = Weights()


def lear(settings: Lear = Lear()) -> Recipe:
    """0.8·answer + 0.1·length + 0.1·format. Source: LEAR, Eq. 9."""
    tags = Tags(("reason", "extract", "answer"), settings.sections.style())
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
        )
        for letter, part in _PARTS.items()
    }
    chosen = tuple(answers[letter] for letter in dict.fromkeys(settings.answers))
    answer = Mean(chosen, "answer")
    length = Lengths(
        tags,
        settings.length.tau,
        settings.length.gamma,
        settings.length.omega,
        gated_by=answers["e"] if settings.length.gated else None,
        distinct=settings.length.distinct,
    )
    format_ = Format(tags, tags.names, settings.format.words)
    weights = settings.weights
    total = Sum(((weights.answer, answer), (weights.length, length), (weights.format, format_)))
    parts = [Component(length, name) for name in ("length_rationale", "length_evidence")]
    components: tuple[Reward, ...] = (answer, *answers.values(), length, *parts, format_)
    return Recipe("lear", components, total, correct=answers["f"], settings=settings)


LEAR = Blueprint(
    name="lear",
    summary="answers from masked contexts, comprehensive reasoning, concise evidence",
    source="LEAR, section 3.2, Eq. 4 to 9",
    output="<reason>…</reason> <extract>…</extract> <answer>…</answer>",
    settings=Lear,
    build=lear,
    fields=("documents", "answers", "masked_answers"),
    hardened={
        "sections.repeated": Flip("missing", (7, 12), "many answer sections, one right"),
        "format.words": Flip(True, (11, 24), "sections of '.'"),
        "normalizer": Flip("unicode", (4, 6, 27, 28), "3.14 is not 314"),
        "length.gated": Flip(True, (23, 24), "a short extract that leads to nothing"),
        "length.distinct": Flip(True, (25, 26), "a rationale drawn out by repetition"),
    },
    loopholes=(
        "6, 27, 28: squad equates 3.14 with 314; invisible words lengthen a rationale (closed: "
        "hardened)",
        "7: of many answer sections the first counts (closed: hardened)",
        "24: '.' as extract takes the full length reward (closed: hardened)",
        "13: a well-formed wrong response keeps its format share: the paper's own definition",
        "1, 2, 3, 9, 10, 30: a list, a negation or a quotation keeps part of an F1: the paper's "
        "own metric",
        "25, 29: a longer rationale earns up to 0.05 more, by new words: the paper's own "
        "definition",
        "31: an answer in the rationale is rewarded there: what answer_rationale measures",
    ),
    training=(
        "advantage (R − mean)/max(std, 0.1), population std; KL 0.01, clip 0.2",
        "learning rate 1e-6, one epoch on NQ (79.1k), 5 passages of 100 words",
        "group and batch size not stated; at use, generation stops at </extract>",
    ),
)
