"""RagEnv: a right answer, the supporting documents that it found and cites, and its brevity.

The defaults are those of benchmax #64, the reward of SearchEnv. That of RagEnv (#97) has `gated`,
`measure=recall` and `weights.grounding=0.2`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from rag_rewards.compose import Mapped, weighted
from rag_rewards.definition import ComponentInfo, HardenedSetting, Loophole, RecipeDefinition
from rag_rewards.prompts import CLOSED_BOOK_LAYOUT, OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.recipes.turn_settings import HARDENED, TURNS
from rag_rewards.reward import Component
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.search import MalformedTurns
from rag_rewards.rewards.sources import SourceComponents, source_reward
from rag_rewards.settings import Part, about
from rag_rewards.turns.trajectory import Reading

_CODE = "benchmax #64: search_env.py"

PROMPT = Prompt(
    CLOSED_BOOK_LAYOUT,
    instruction="Answer the question below with the search tool. Reason inside <think> and "
    "</think> before each search, and split the question into queries of their own where it has "
    "several parts. To search, write the query between <search> and </search>. The results appear "
    "between <information> and </information>. If they do not have the answer, search again in "
    "other words. Then give a short answer inside <answer> and </answer>, and cite the source of "
    "each claim with its id in the results, as in [Source: 3].",
)


@dataclass(frozen=True)
class SourceWeights:
    """The weights of the components beside the outcome."""

    hit: Annotated[float, about("weight of hit, also for a wrong answer", _CODE, ge=0)] = 0.3
    citation: Annotated[float, about("weight of citation", _CODE, ge=0)] = 0.3
    grounding: Annotated[
        float, about("weight of grounding", "benchmax #64: none; #97: 0.2", ge=0)
    ] = 0.0
    brevity: Annotated[float, about("weight of brevity", _CODE, ge=0)] = 0.2


def rag_env(
    reading: Reading,
    malformed: MalformedTurns,
    answer: AnswerMatch,
    sources: SourceComponents,
    weights: SourceWeights,
) -> Recipe:
    """Return the reward of an answer and its sources, at the last turn. Source: benchmax."""
    sources = replace(sources, answer=answer, reading=reading)
    malformed = replace(malformed, reading=reading)
    names = ("outcome", "hit", "citation", "grounding", "brevity")
    parts = tuple(Component(sources, name) for name in names)
    values = (weights.hit, weights.citation, weights.grounding, weights.brevity)
    bonus = " + ".join(f"{w:g}·{name}" for w, name in zip(values[1:], names[2:], strict=True) if w)
    right = "outcome·[hit > 0]" if sources.gated else "outcome"
    text = f"{right}·(1 + {bonus or 0}) + {weights.hit:g}·hit"
    function = partial(source_reward, weights=values, gated=sources.gated)
    total = weighted((1, Mapped(function, parts, "", text)), (1, malformed))
    return Recipe("rag-env", (*parts, malformed), total, correct=parts[0])


RAG_ENV = RecipeDefinition(
    name="rag-env",
    summary="a right answer, the supporting documents that it found and cites, and its brevity",
    source="castform-ai/benchmax #64 and #97",
    output=OutputForm("<think>…</think> <answer>… with citations [Source: id]</answer>"),
    parts={
        **TURNS,
        "answer": Part(AnswerMatch("outcome", metric="judge"), prefix="accuracy", fixed=("reads",)),
        "sources": Part(SourceComponents(), prefix=""),
        "weights": SourceWeights(),
    },
    sources={"accuracy.metric": _CODE},
    build=rag_env,
    fields=("answers", "supporting", "turns", "verdicts.outcome"),
    components=(
        ComponentInfo("outcome", "1 if the answer is right, otherwise 0"),
        ComponentInfo(
            "hit",
            "share of the supporting documents that the answer cites or, with gated=true, that "
            "the results contain",
        ),
        ComponentInfo("citation", "agreement of the cited with the supporting documents"),
        ComponentInfo("grounding", "share of the cited documents that the results contain"),
        ComponentInfo("brevity", "1 − length/600 of the answer in characters, at least 0"),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    model_free={"accuracy.metric": "exact"},
    hardened={
        **HARDENED,
        **shared.LIST,
        "gated": HardenedSetting(
            True, (17, 36), "citing every document with a wrong answer; an answer from memory"
        ),
        "measure": HardenedSetting("f1", (17,), "citing every document that was found"),
        "claims_only": HardenedSetting(True, (16,), "citation markers without a claim"),
    },
    rejected=shared.REJECTED,
    loopholes=(
        Loophole((16,), "citation markers without a claim count"),
        Loophole((17,), "citing every document earns the full hit, also for a wrong answer"),
        Loophole((36,), "with gated=false, an answer from memory earns the full outcome"),
        Loophole(
            (20, 21),
            "with accuracy.metric=judge, the reward is as reliable as the judge",
            variants={20: ("colon",), 21: ("verdict-in-the-answer",)},
        ),
        Loophole(
            (35,),
            "with gated=true, a query that lists every candidate finds a supporting document, "
            "which earns up to 0.3 for a wrong answer",
            variants={35: ("every-candidate-in-a-query",)},
        ),
        Loophole(
            (1,), "with several required answers, a list of every candidate answer counts as right"
        ),
        Loophole((6,), "the normalizer squad treats 3.14 as 314 and C++ as C"),
        Loophole((7,), "the last of many answer sections counts"),
    ),
    deviations=(
        "a judge that fails leaves the rollout unscored; the code of #64 counts it as 0",
        "a source is compared by its id as written; the code ignores case, folder and file type",
        "a row without `supporting` is an error; the code gives its sources 0",
        "only a complete answer section is read; the code also reads one that never closes",
        "the judge gets the answer without its citations",
        "documents of a row without searches count as its results",
    ),
)
