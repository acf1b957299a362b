"""CTRL-RAG: contrastive likelihood, alone or as a gate of correctness.

The authors have released the accuracy rule of their leaderboard, but no training code. The other
documents keep their numbers when a document is removed.
"""

from __future__ import annotations

from typing import Annotated, Literal

from rag_rewards.compose import Product, Sum
from rag_rewards.definition import (
    ChangedDefault,
    ComponentInfo,
    HardenedSetting,
    Loophole,
    Recipe,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.group_normalization import GroupMinMax
from rag_rewards.prompts import CLOSED_BOOK_LAYOUT, OutputForm, Prompt
from rag_rewards.recipes import shared
from rag_rewards.reward import Component, Reward
from rag_rewards.rewards.answer import AnswerMatch, Reads
from rag_rewards.rewards.contrastive import ContrastiveLikelihood, LengthNorm, Loo, ThresholdOn
from rag_rewards.rewards.correctness import Metric
from rag_rewards.settings import Settings, about
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.text.sections import Tags
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


class Accuracy(shared.Accuracy, frozen=True):
    metric: Annotated[Metric, about(shared.METRIC, "paper, Eq. 3")] = "substring"
    normalizer: Annotated[NormalizerName, about("text normalizer", "authors' leaderboard")] = (
        "lower"
    )
    reads: Annotated[
        Reads,
        about(
            "response: the response without its thinking; answer: the answer section; final: the "
            "answer section, or else the last statement",
            "paper, section 5.3: think tokens stripped",
        ),
    ] = "response"

    def options(self) -> dict[str, object]:
        """Return the settings as keyword arguments of AnswerMatch."""
        return {name: getattr(self, name) for name in Accuracy.__struct_fields__}


class Clr(Settings, frozen=True):
    """Settings of the contrastive likelihood reward."""

    loo: Annotated[
        Loo,
        about(
            "minimum or mean (Eq. 16) of the log-probabilities without one supporting document",
            "paper, Eq. 10, Table 2",
        ),
    ] = "min"
    threshold: Annotated[
        float | None,
        about(
            "τ in nats: a response below the threshold gets 0; null for no threshold",
            "paper, Eq. 13; Appendix A: 1",
        ),
    ] = 1.0
    threshold_on: Annotated[
        ThresholdOn,
        about(
            "contribution: R is 0 unless E > τ, before the division; reward: R is 0 if E/√T < τ",
            "paper, Eq. 13: E; the text of Appendix A: R",
        ),
    ] = "contribution"
    length_norm: Annotated[
        LengthNorm, about("divide E by √T, 1 or T", "paper, Eq. 13, Figure 5")
    ] = "sqrt"
    span: Annotated[
        Literal["response", "answer"],
        about(
            "text whose log-probability is used; answer: without the thinking section",
            "paper, Eq. 9: the response",
        ),
    ] = "response"
    on_missing_support: Annotated[
        Literal["error", "zero"],
        about("rows without supporting documents are errors or get the reward 0"),
    ] = "error"
    tokens: Annotated[
        bool, about("add the evidential contribution of each token to the details")
    ] = False
    sections: shared.Sections = shared.Sections()
    accuracy: Accuracy = Accuracy()


class CtrlRag(Clr, frozen=True):
    """Settings of CTRL-RAG."""

    fusion: Annotated[
        Literal["gate", "add", "none"],
        about("gate: R′·accuracy; add: w·R′ + accuracy; none: R′", "paper, Eq. 15, Table 2"),
    ] = "gate"
    weight: Annotated[float, about("w for fusion=add")] = 1.0
    min_spread: Annotated[
        float,
        about(
            "a group has no spread if the maximum of clr minus its minimum is at most this value",
            ge=0,
        ),
    ] = 0.0
    no_spread: Annotated[
        Literal["zero", "one"],
        about(
            "R′ of a group without spread; one: 1 for a contribution above the threshold, else "
            "the floor",
            "paper, Eq. 14: 0",
        ),
    ] = "zero"
    among: Annotated[
        Literal["all", "correct"],
        about(
            "rollouts that set the minimum and the maximum of the scaling; correct: wrong "
            "rollouts are excluded",
            "paper, Eq. 14",
        ),
    ] = "all"
    floor: Annotated[float, about("value of R′ at the minimum of the group", ge=0, lt=1)] = 0.0


def ctrl_rag(settings: CtrlRag) -> Recipe:
    """Return R′_CLR · R_acc within the group. Source: CTRL-RAG, Eq. 13 to 15.

    R′_CLR of a single rollout, as in a validation, is 1 if E > τ, otherwise 0; Eq. 14 gives 0.
    """
    likelihood = _likelihood(settings)
    contribution, clr = _components(likelihood)
    accuracy = answer_match(settings.sections, settings.accuracy)
    by_reward = settings.threshold_on == "reward"
    scaled = GroupMinMax(
        clr,
        min_spread=settings.min_spread,
        no_spread=settings.no_spread,
        single=None if by_reward else contribution,
        single_above=0.0 if by_reward else settings.threshold or 0.0,
        floor=settings.floor,
        among=accuracy if settings.among == "correct" else None,
        label="clr_normalized",
    )
    total: Reward = scaled
    if settings.fusion == "gate":
        total = Product((scaled, accuracy))
    elif settings.fusion == "add":
        total = Sum(((settings.weight, scaled), (1.0, accuracy)))
    components = (contribution, clr, scaled, accuracy)
    return Recipe("ctrl-rag", components, total, correct=accuracy, settings=settings)


def ctrl_rag_clr(settings: Clr) -> Recipe:
    """Return R_CLR. Source: CTRL-RAG, Eq. 13."""
    likelihood = _likelihood(settings)
    return Recipe(
        "ctrl-rag-clr",
        _components(likelihood),
        likelihood,
        correct=answer_match(settings.sections, settings.accuracy),
        settings=settings,
    )


def _likelihood(settings: Clr) -> ContrastiveLikelihood:
    return ContrastiveLikelihood(
        settings.loo,
        settings.threshold,
        settings.length_norm,
        settings.span,
        settings.on_missing_support,
        settings.tokens,
        settings.threshold_on,
    )


def _components(likelihood: ContrastiveLikelihood) -> tuple[Component, Component]:
    return Component(likelihood, "evidential_contribution"), Component(likelihood, "clr")


def answer_match(sections: shared.Sections, accuracy: Accuracy) -> AnswerMatch:
    """Return the reward for the accuracy. Source: CTRL-RAG, Eq. 3."""
    tags = Tags(("answer",), sections.style())
    return AnswerMatch(tags=tags, **accuracy.options())  # type: ignore[arg-type]


HARDENED_SECTIONS = HardenedSetting("missing", (7, 12), "many answer sections, one of them right")
HARDENED_ACCURACY = {
    "accuracy.normalizer": HardenedSetting("unicode", (4, 6, 27, 28), "matching 3.14 with 314"),
    "accuracy.reads": HardenedSetting(
        "answer", (1, 9, 10), "a right answer anywhere in a long response"
    ),
    "accuracy.undecided": shared.UNDECIDED,
}
CHANGED_ACCURACY = (
    *shared.CHANGED_ACCURACY,
    ChangedDefault("0.8.0", "accuracy.reads", "response", "final"),
)
_CLR = {
    "sections.repeated": HARDENED_SECTIONS,
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
        is_closed=True,
    ),
    Loophole((6,), "the lower-case text 13.145 contains 3.14", is_closed=True),
    Loophole((7, 12), "every one of many answer sections counts", is_closed=True),
    Loophole(
        (31,),
        "copying the answer into the thinking section increases the evidential contribution E",
        is_closed=True,
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
_CHANGED = (
    ChangedDefault("0.3.0", "threshold_on", "contribution", "contribution"),
    *CHANGED_ACCURACY,
)

CTRL_RAG = RecipeDefinition(
    name="ctrl-rag",
    summary="increase of the likelihood of a correct response by the supporting documents",
    source="CTRL-RAG, Eq. 9 to 15",
    output=OutputForm("any; an <answer> section is read if there is one", required=False),
    settings=CtrlRag,
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
    changed_defaults=_CHANGED,
)

CTRL_RAG_CLR = RecipeDefinition(
    name="ctrl-rag-clr",
    summary="increase of the likelihood of a response by the supporting documents; uses no gold "
    "answer",
    source="CTRL-RAG, Eq. 13",
    output=OutputForm("any", required=False),
    settings=Clr,
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
            is_closed=True,
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
    changed_defaults=_CHANGED,
)
