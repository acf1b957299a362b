"""Citation recall and accuracy: the baseline of CTRL-RAG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rag_rewards.compose import Sum
from rag_rewards.definition import (
    ComponentInfo,
    HardenedSetting,
    Loophole,
    RecipeDefinition,
)
from rag_rewards.prompts import OutputForm
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import ctrl_rag, shared
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.citation import CitationRecall
from rag_rewards.rewards.length import Cost
from rag_rewards.settings import Part, about
from rag_rewards.text.sections import SectionStyle


@dataclass(frozen=True)
class Weights:
    """The weights of the components."""

    alpha: Annotated[float, about("weight of citation recall", "CTRL-RAG, section 5")] = 0.5
    beta: Annotated[float, about("weight of accuracy", "CTRL-RAG, section 5")] = 0.5
    eta: Annotated[
        float, about("weight of the cost, which is subtracted", "CTRL-RAG, section 5")
    ] = 0.0


def rag_total(
    weights: Weights,
    citation: CitationRecall,
    cost: Cost,
    sections: SectionStyle,
    accuracy: AnswerMatch,
) -> Recipe:
    """Return α·citation_recall + β·accuracy − η·cost. Source: CTRL-RAG, Eq. 2 to 4."""
    accuracy = ctrl_rag.in_section(accuracy, sections)
    total = Sum(((weights.alpha, citation), (weights.beta, accuracy), (-weights.eta, cost)))
    return Recipe("rag-total", (citation, accuracy, cost), total, correct=accuracy)


RAG_TOTAL = RecipeDefinition(
    name="rag-total",
    summary="rewards for citation recall and accuracy: the baseline of CTRL-RAG",
    source="CTRL-RAG, Eq. 2 to 4",
    output=OutputForm("any, with [n] markers", required=False),
    parts={
        "weights": Part(Weights(), prefix=""),
        "citation": CitationRecall(),
        "cost": Cost(),
        "sections": SectionStyle(),
        "accuracy": ctrl_rag.PART_OF_ACCURACY,
    },
    sources=ctrl_rag.SOURCES,
    build=rag_total,
    fields=("documents", "supporting", "answers"),
    components=(
        ComponentInfo("citation_recall", "share of the supporting documents that are cited"),
        ctrl_rag.ACCURACY,
        ComponentInfo("cost", "number of words above the budget, divided by the budget", 0.0, None),
    ),
    hardened={
        **shared.SECTIONS,
        "citation.include_thinking": HardenedSetting(
            False, (19,), "citation markers in the thinking section"
        ),
        "citation.measure": HardenedSetting("f1", (17, 18, 30), "citing every document"),
        "citation.min_precision": HardenedSetting(0.5, (17, 30), "citing most documents"),
        "citation.claims_only": HardenedSetting(True, (16,), "citation markers without a claim"),
        **ctrl_rag.HARDENED_ACCURACY,
    },
    rejected=shared.REJECTED,
    loopholes=(
        Loophole(
            (1, 2, 3, 9, 10, 25, 27, 28, 30),
            "a gold answer also counts inside a list, a negation or a quotation",
        ),
        Loophole((6,), "the lower-case text 13.145 contains 3.14"),
        Loophole((7, 12), "every one of many answer sections counts"),
        Loophole((16, 19), "citation markers without a claim count"),
        Loophole((17,), "citing every document gives a recall of 1"),
    ),
    baselines=ctrl_rag.BASELINES,
    training=ctrl_rag.TRAINING,
    data=ctrl_rag.DATA,
)
