"""CTRL-RAG: contrastive likelihood, alone or as a gate of correctness.

The authors have released the accuracy rule of their leaderboard, but no training code. The other
documents keep their numbers when a document is removed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from rag_rewards.compose import GroupMinMax, Product, Sum
from rag_rewards.definition import (
    ComponentInfo,
    HardenedSetting,
    Loophole,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.prompts import CLOSED_BOOK_LAYOUT, OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.reward import Component, Reward
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.contrastive import ContrastiveLikelihood
from rag_rewards.settings import Part, about
from rag_rewards.text.sections import SectionStyle, Tags
from rag_rewards.training.settings import Stated, Training

# Source: CTRL-RAG, section 5.2: the accuracy Acc(Q) without documents, for the reference reliance.
# It differs from the prompt with documents only in what concerns the documents.
BASELINES = {
    "closed-book": Prompt(
        CLOSED_BOOK_LAYOUT,
        instruction="Answer the question from what you know. Reason step by step inside <think> "
        "and </think>, and put the final answer alone inside <answer> and </answer>.",
    )
}


@dataclass(frozen=True)
class Fusion:
    """How the scaled likelihood is combined with the accuracy."""

    fusion: Annotated[
        Literal["gate", "add", "none"],
        about("gate: R′·accuracy; add: w·R′ + accuracy; none: R′", "paper, Eq. 15, Table 2"),
    ] = "gate"
    weight: Annotated[
        float, about("w for fusion=add", "ours: equal weights, as the paper states none")
    ] = 1.0
    among: Annotated[
        Literal["all", "correct"],
        about(
            "rollouts that set the minimum and the maximum of the scaling; correct: wrong "
            "rollouts are excluded",
            "paper, Eq. 14",
        ),
    ] = "all"

    def __call__(self, scaled: Reward, accuracy: Reward) -> Reward:
        """Return the combination. Source: CTRL-RAG, Eq. 15."""
        if self.fusion == "gate":
            return Product((scaled, accuracy))
        if self.fusion == "add":
            return Sum(((self.weight, scaled), (1.0, accuracy)))
        return scaled


def ctrl_rag(
    likelihood: ContrastiveLikelihood,
    sections: SectionStyle,
    accuracy: AnswerMatch,
    scaled: GroupMinMax,
    fusion: Fusion,
) -> Recipe:
    """Return R′_CLR · R_acc within the group. Source: CTRL-RAG, Eq. 13 to 15.

    R′_CLR of a single rollout, as in a validation, is 1 if E > τ, otherwise 0; Eq. 14 gives 0.
    """
    contribution, clr = _components(likelihood)
    accuracy = in_section(accuracy, sections)
    by_reward = likelihood.threshold_on == "reward"
    scaled = replace(
        scaled,
        reward=clr,
        single=None if by_reward else contribution,
        single_above=0.0 if by_reward else likelihood.threshold or 0.0,
        among=accuracy if fusion.among == "correct" else None,
    )
    components = (contribution, clr, scaled, accuracy)
    return Recipe("ctrl-rag", components, fusion(scaled, accuracy), correct=accuracy)


def ctrl_rag_clr(
    likelihood: ContrastiveLikelihood, sections: SectionStyle, accuracy: AnswerMatch
) -> Recipe:
    """Return R_CLR. Source: CTRL-RAG, Eq. 13."""
    correct = in_section(accuracy, sections)
    return Recipe("ctrl-rag-clr", _components(likelihood), likelihood, correct=correct)


def _components(likelihood: ContrastiveLikelihood) -> tuple[Component, Component]:
    return Component(likelihood, "evidential_contribution"), Component(likelihood, "clr")


def in_section(accuracy: AnswerMatch, sections: SectionStyle) -> AnswerMatch:
    """Return the accuracy of an optional answer section, which is read in this style."""
    return replace(accuracy, tags=Tags(("answer",), sections))


PART_OF_ACCURACY = Part(
    AnswerMatch(metric="substring", normalizer="lower", reads="response"), fixed=("extra",)
)
SOURCES = {
    "accuracy.metric": "CTRL-RAG, Eq. 3",
    "accuracy.normalizer": "CTRL-RAG, authors' leaderboard",
    "accuracy.reads": "CTRL-RAG, section 5.3: think tokens stripped",
}
"""The sources of the accuracy, which is also that of rag-total."""
_LIKELIHOOD_PARTS = {
    "likelihood": Part(ContrastiveLikelihood(), prefix="", fixed=("tokens",)),
    "sections": SectionStyle(),
    "accuracy": PART_OF_ACCURACY,
}
HARDENED_ACCURACY = {
    **shared.ANSWER,
    "accuracy.reads": HardenedSetting(
        "answer", (1, 9, 10), "a right answer anywhere in a long response"
    ),
}
_CLR = {
    **shared.SECTIONS,
    "span": HardenedSetting("answer", (25, 31), "repeating documents in the thinking section"),
    **HARDENED_ACCURACY,
}
_COPIES = (
    "copying or repeating a document in the answer increases the evidential contribution E, so "
    "that it earns more than an answer in other words, as `argon-copies-the-document` of the "
    "examples; the division by √T reduces this effect only partly, as the paper defines it"
)
_LOOPHOLES = (
    Loophole(
        (1, 2, 3, 9, 10, 27, 28, 30),
        "a gold answer also counts inside a list, a negation or a quotation",
    ),
    Loophole((6,), "the lower-case text 13.145 contains 3.14"),
    Loophole((7, 12), "every one of many answer sections counts"),
    Loophole(
        (31,),
        "copying the answer into the thinking section increases the evidential contribution E",
    ),
    Loophole(
        (),
        "in a group without spread, all rewards are 0; the hardened profile rewards correct "
        "rollouts with 1 if their contribution is above the threshold, and else with 0.1",
    ),
    Loophole(
        (25,),
        _COPIES,
        variants={25: ("repeated-before-the-answer",)},
    ),
)
_LIKELIHOOD = (
    ComponentInfo(
        "evidential_contribution",
        "E, in nats: the log-probability of the response with all documents, minus the lowest "
        "log-probability without one of the supporting documents",
        None,
        None,
    ),
    ComponentInfo(
        "clr",
        "E/√T if E > τ, otherwise 0; T: tokens of the response; τ: setting threshold",
        0.0,
        None,
    ),
)
ACCURACY = ComponentInfo(
    "accuracy", "1 if the response contains a gold answer, otherwise 0", values=(0, 1)
)

_PAPER = "CTRL-RAG, appendix A"
TRAINING = Training(
    prompts=Stated(128, f"{_PAPER}: batch of 1,024 rollouts, 8 per prompt"),
    group=Stated(8, _PAPER),
    learning_rate=Stated(1e-6, _PAPER),
    kl=Stated("none", f"{_PAPER}: training with a weight of 0.01 to 0.05 collapsed in 20 steps"),
    kl_weight=Stated(0.0, _PAPER),
    loss_aggregation=Stated("response", "CTRL-RAG, Eq. 5"),
    entropy_weight=Stated(
        0.0,
        "CTRL-RAG, appendix A: the training used entropy regularization; the paper does not state "
        "its form and weight, and 0 turns it off",
    ),
)
DATA = TrainingData(("hotpotqa", "musique"), "CTRL-RAG, section 5")

CTRL_RAG = RecipeDefinition(
    name="ctrl-rag",
    summary="increase of the likelihood of a correct response by the supporting documents",
    source="CTRL-RAG, Eq. 9 to 15",
    output=OutputForm("any; an <answer> section is read if there is one", required=False),
    parts={
        **_LIKELIHOOD_PARTS,
        "scaled": Part(GroupMinMax(ContrastiveLikelihood(), label="clr_normalized"), prefix=""),
        "fusion": Part(Fusion(), prefix=""),
    },
    sources=SOURCES,
    build=ctrl_rag,
    fields=("documents", "supporting", "answers", "logprobs"),
    components=(
        *_LIKELIHOOD,
        ComponentInfo(
            "clr_normalized", "R′: clr scaled between the minimum and the maximum of its group"
        ),
        ACCURACY,
    ),
    hardened={
        **_CLR,
        "no_spread": HardenedSetting(
            "one", (), "equal rewards in a group without spread (advantage 0)"
        ),
        "among": HardenedSetting("correct", (), "a wrong rollout that determines the scaling"),
        "floor": HardenedSetting(0.1, (), "a reward of 0 for a right rollout"),
    },
    rejected=shared.REJECTED,
    loopholes=_LOOPHOLES,
    baselines=BASELINES,
    training=TRAINING,
    data=DATA,
)

CTRL_RAG_CLR = RecipeDefinition(
    name="ctrl-rag-clr",
    summary="increase of the likelihood of a response by the supporting documents; uses no gold "
    "answer",
    source="CTRL-RAG, Eq. 13",
    output=OutputForm("any", required=False),
    parts=_LIKELIHOOD_PARTS,
    sources=SOURCES,
    build=ctrl_rag_clr,
    fields=("documents", "supporting", "logprobs"),
    components=_LIKELIHOOD,
    hardened=_CLR,
    loopholes=(
        Loophole(
            (),
            "a wrong answer from a document earns as much as a right one, because the reward "
            "uses no gold answer",
        ),
        Loophole(
            (31,),
            "copying the answer into the thinking section increases the evidential contribution E",
        ),
        Loophole(
            (25,),
            _COPIES,
            variants={25: ("repeated-before-the-answer", "repeated-in-the-answer")},
        ),
    ),
    baselines=BASELINES,
    training=TRAINING,
    data=DATA,
)
