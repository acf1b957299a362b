"""IGPO: an agent that searches in several turns, with the information gain of each turn.

Deviations from the authors' code: the end of a turn is known, so that a gain of exactly 0 needs no
substitute. Log-probabilities that do not fit the turns are an error; the code then uses the outcome
alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from rag_rewards.compose import Ramp, weighted
from rag_rewards.definition import (
    ComponentInfo,
    HardenedSetting,
    Loophole,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.recipes.search_r1 import OUTPUT, PROMPT, SEARCH_PROMPTS
from rag_rewards.recipes.turn_settings import HARDENED, TURNS
from rag_rewards.reward import Component, CorrectOf, Reward
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.igpo import CODE, IgpoReward, LikelihoodReader
from rag_rewards.rewards.search import MalformedTurns
from rag_rewards.settings import Part, about
from rag_rewards.training.credit.settings import CreditSettings
from rag_rewards.training.settings import Stated, Training
from rag_rewards.turns.trajectory import Reading


@dataclass(frozen=True)
class Weights:
    """The weight of the gains, and how it changes."""

    weight: Annotated[float, about("weight of the gains", CODE, ge=0)] = 1.0
    curriculum: Annotated[
        int,
        about(
            "number of training steps in which the weight of the outcome rises from 0.5 to 1 and "
            "that of the gains falls from 1 to 0.5; 0: both are 1",
            CODE,
            ge=0,
        ),
    ] = 0


def igpo(
    reading: Reading,
    malformed: MalformedTurns,
    answer: AnswerMatch,
    parts: IgpoReward,
    likelihood: LikelihoodReader,
    weights: Weights,
    credit: CreditSettings,
) -> Recipe:
    """Return the gain of each turn and the outcome. Source: IGPO, authors' code.

    Trainers read `credit`.
    """
    parts = replace(parts, answer=answer, likelihood=likelihood, reading=reading)
    outcome: Reward = Component(parts, "outcome")
    gains: Reward = Component(parts, "info_gain", default=0.0)
    if weights.curriculum:
        outcome = Ramp(outcome, 0.5, 1.0, weights.curriculum)
        gains = Ramp(gains, 1.0, 0.5, weights.curriculum)
    malformed = replace(malformed, reading=reading)
    total = weighted((1, outcome), (weights.weight, gains), (1, malformed))
    names = ("outcome", "info_gain", "prior", "posterior")
    components: tuple[Reward, ...] = (*(Component(parts, name) for name in names), malformed)
    return Recipe("igpo", components, total, correct=CorrectOf(parts))


_TRAINING = "authors' code at 745078b: train.sh"
TRAINING = Training(
    prompts=Stated(32, _TRAINING),
    group=Stated(16, _TRAINING),
    learning_rate=Stated(1e-6, _TRAINING),
    kl_weight=Stated(0.001, _TRAINING),
    notes=(
        "at most 10 turns",
        "the loss ignores the tokens of the results",
        "without turn credit, the reward is the sum of the turns: the outcome, and the likelihood "
        "of the answer after the last search minus the one before the first turn",
    ),
)

IGPO = RecipeDefinition(
    name="igpo",
    summary="the answer of a search agent, and how much each turn raises its likelihood",
    source="IGPO, authors' code at 745078b",
    output=OUTPUT,
    parts={
        **TURNS,
        "answer": Part(
            AnswerMatch("outcome", metric="f1"),
            prefix="accuracy",
            fixed=("reads", "extra"),
            values={"metric": ("f1", "exact")},
        ),
        "parts": Part(IgpoReward(), prefix=""),
        "likelihood": Part(LikelihoodReader(), prefix="gain"),
        "weights": Part(Weights(), prefix="gain"),
        "credit": CreditSettings(method="igpo"),
    },
    sources={
        "accuracy.metric": CODE,
        "accuracy.normalizer": CODE,
        "credit.method": "IGPO, authors' code",
    },
    build=igpo,
    fields=("answers", "turns", "turn_logprobs"),
    components=(
        ComponentInfo(
            "outcome",
            "token F1 of the answer, or bad_end without an answer or with unbalanced tags",
            -2.0,
        ),
        ComponentInfo(
            "info_gain",
            "sum over the turns of the rise of the likelihood of the gold answer",
            -1.0,
        ),
        ComponentInfo("prior", "likelihood of the gold answer before the first turn, per token"),
        ComponentInfo("posterior", "likelihood of the gold answer after the last search"),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    baselines=SEARCH_PROMPTS,
    training=TRAINING,
    data=TrainingData(("nq", "hotpotqa"), "authors' code at 745078b"),
    hardened={
        **HARDENED,
        **shared.ANSWER,
        "gain.baseline": HardenedSetting(
            "empty",
            (40,),
            "writing a guess, which raises the likelihood without evidence",
        ),
        "gain.count": HardenedSetting(
            "rises", (39,), "lowering the likelihood to regain it, or doubting and searching again"
        ),
        "gain.gated": HardenedSetting(
            True, (39,), "gains without a right answer, such as for a document that is ignored"
        ),
        "credit.method": HardenedSetting(
            "return", (42,), "stopping early, or never, because the number of turns has an effect"
        ),
    },
    rejected={
        "gain.kind": {"log": "has gains without bound, which outweigh the outcome (attack 41)"},
        "outcome.tokens": {"set": "reads the answer as a set of words"},
    },
    loopholes=(
        Loophole((1, 2), "the F1 of a list or of a negation of the gold answer is above 0"),
        Loophole((6,), "the normalizer squad treats 3.14 as 314 and C++ as C"),
        Loophole((7,), "the last of many answer sections counts"),
        Loophole(
            (33,),
            "a results block that the policy writes raises the likelihood of the answer; in a "
            "transcript, it also counts as results",
        ),
        Loophole(
            (40,), "a guess in the words or in the query raises the likelihood without evidence"
        ),
        Loophole((43,), "invalid turns cost nothing, and a guess in them raises the likelihood"),
        Loophole(
            (39,),
            "a turn can lower the likelihood of the answer for the next one to regain it: the sum "
            "of the gains does not change, but the credit method igpo normalizes them",
        ),
        Loophole(
            (41,),
            "with gain.kind=log, the gains have no bound and outweigh the outcome; the hardened "
            "profile rejects this setting",
        ),
        Loophole((42,), "with the credit method igpo, the number of turns changes the advantages"),
    ),
    deviations=(
        "log-probabilities that do not fit the turns are an error; the authors' code then uses the "
        "outcome alone",
        "the first public release discounts before it normalizes; the authors call it an early "
        "attempt",
    ),
)
