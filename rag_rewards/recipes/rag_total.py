"""Citation recall and accuracy: the baseline of CTRL-RAG."""

from __future__ import annotations

from typing import Annotated, Literal

from rag_rewards.compose import Sum
from rag_rewards.definition import (
    ChangedDefault,
    ComponentInfo,
    HardenedSetting,
    Loophole,
    Recipe,
    RecipeDefinition,
)
from rag_rewards.prompts import OutputForm
from rag_rewards.recipes import ctrl_rag, shared
from rag_rewards.rewards.citation import CitationRecall
from rag_rewards.rewards.cost import Cost
from rag_rewards.settings import Settings, about
from rag_rewards.text.citations import CITATION, OLD_CITATION


class CitationSettings(Settings, frozen=True):
    include_thinking: Annotated[
        bool, about("count the markers in the thinking section too", "paper, Eq. 2")
    ] = True
    measure: Annotated[
        Literal["recall", "f1"],
        about(
            "recall of the cited documents, or their F1, which is lower if other documents "
            "are cited",
            "paper, Eq. 2",
        ),
    ] = "recall"
    min_precision: Annotated[
        float,
        about(
            "with measure=f1, minimum share of supporting documents among the cited documents",
            "paper, Eq. 2: none",
            ge=0,
            le=1,
        ),
    ] = 0.0
    claims_only: Annotated[
        bool,
        about("count a marker only if its statement has at least three words or a gold answer"),
    ] = False
    pattern: Annotated[
        str, about("regular expression of a citation marker; group 1 contains the numbers")
    ] = CITATION


class CostSettings(Settings, frozen=True):
    kind: Annotated[
        Literal["length", "repetition"],
        about("length above the budget, or share of repeated n-grams", "paper, Eq. 4: both"),
    ] = "length"
    budget: Annotated[int, about("with kind=length, number of words without a cost", ge=1)] = 512
    ngram: Annotated[int, about("with kind=repetition, number of words in an n-gram", ge=1)] = 4


class RagTotal(Settings, frozen=True):
    """Settings of CTRL-RAG's baseline."""

    alpha: Annotated[float, about("weight of citation recall", "paper, section 5")] = 0.5
    beta: Annotated[float, about("weight of accuracy", "paper, section 5")] = 0.5
    eta: Annotated[float, about("weight of the cost, which is subtracted", "paper, section 5")] = (
        0.0
    )
    citation: CitationSettings = CitationSettings()
    cost: CostSettings = CostSettings()
    sections: shared.Sections = shared.Sections()
    accuracy: ctrl_rag.Accuracy = ctrl_rag.Accuracy()


def rag_total(settings: RagTotal) -> Recipe:
    """Return α·citation_recall + β·accuracy − η·cost. Source: CTRL-RAG, Eq. 2 to 4."""
    citation = settings.citation
    recall = CitationRecall(
        citation.include_thinking,
        citation.measure,
        citation.min_precision,
        citation.claims_only,
        citation.pattern,
    )
    accuracy = ctrl_rag.answer_match(settings.sections, settings.accuracy)
    cost = Cost(settings.cost.kind, settings.cost.budget, settings.cost.ngram)
    total = Sum(((settings.alpha, recall), (settings.beta, accuracy), (-settings.eta, cost)))
    return Recipe("rag-total", (recall, accuracy, cost), total, correct=accuracy, settings=settings)


RAG_TOTAL = RecipeDefinition(
    name="rag-total",
    summary="rewards for citation recall and accuracy: the baseline of CTRL-RAG",
    source="CTRL-RAG, Eq. 2 to 4",
    output=OutputForm("any, with [n] markers", required=False),
    settings=RagTotal,
    build=rag_total,
    fields=("documents", "supporting", "answers"),
    components=(
        ComponentInfo("citation_recall", "share of the supporting documents that are cited"),
        ctrl_rag.ACCURACY,
        ComponentInfo("cost", "number of words above the budget, divided by the budget", 0.0, None),
    ),
    hardened={
        "sections.repeated": ctrl_rag.HARDENED_SECTIONS,
        "citation.include_thinking": HardenedSetting(
            False, (19,), "citation markers in the thinking section"
        ),
        "citation.measure": HardenedSetting("f1", (17, 18, 30), "citing every document"),
        "citation.min_precision": HardenedSetting(0.5, (17, 30), "citing most documents"),
        "citation.claims_only": HardenedSetting(True, (16,), "citation markers without a claim"),
        **ctrl_rag.HARDENED_ACCURACY,
    },
    rejected=shared.REJECTED,
    changed_defaults=(
        *ctrl_rag.CHANGED_ACCURACY,
        ChangedDefault("0.4.0", "citation.pattern", OLD_CITATION, OLD_CITATION),
    ),
    loopholes=(
        Loophole(
            (1, 2, 3, 9, 10, 25, 27, 28, 30),
            "a gold answer also counts inside a list, a negation or a quotation",
            is_closed=True,
        ),
        Loophole((6,), "the lower-case text 13.145 contains 3.14", is_closed=True),
        Loophole((7, 12), "every one of many answer sections counts", is_closed=True),
        Loophole((16, 19), "citation markers without a claim count", is_closed=True),
        Loophole((17,), "citing every document gives a recall of 1", is_closed=True),
    ),
    baselines=ctrl_rag.BASELINES,
    training=ctrl_rag.TRAINING,
    data=ctrl_rag.DATA,
)
