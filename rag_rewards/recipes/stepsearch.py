"""StepSearch: an agent that searches in several turns, with a reward for each search.

Deviations from the authors' code: a query that fits no search key changes no key, where the code
sets the last key to 0. The reward of a search is at the end of its turn, where the code writes it
at the closing tag of the query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from rag_rewards.compose import Product, weighted
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
from rag_rewards.rewards.search import MalformedTurns
from rag_rewards.rewards.stepsearch import CODE, INFORAGE, StepSearchReward
from rag_rewards.settings import Part, about
from rag_rewards.training.credit.settings import CreditSettings
from rag_rewards.training.settings import Stated, Training
from rag_rewards.turns.trajectory import Reading

_MAIN = "StepSearch, authors' code at 43215ba: main_ppo.py"


@dataclass(frozen=True)
class Weights:
    """The weights of the components."""

    keys: Annotated[
        float,
        about("weight of the search keys; 0: no keys needed", CODE, key="keys.weight", ge=0),
    ] = 0.618
    step: Annotated[
        float,
        about(
            "factor of the reward of a search",
            f"{_MAIN}; there, the reward is added to itself, so that 1.6 reproduces the runs",
            key="step.scale",
            ge=0,
        ),
    ] = 0.6
    redundancy: Annotated[
        float,
        about(
            "weight of the share of results that earlier ones repeat",
            CODE,
            key="redundancy.weight",
            ge=0,
        ),
    ] = 1.0
    coverage: Annotated[
        float,
        about(
            "with process=coverage, weight of the coverage", INFORAGE, key="coverage.weight", ge=0
        ),
    ] = 0.2


def stepsearch(
    reading: Reading,
    malformed: MalformedTurns,
    answer: AnswerMatch,
    parts: StepSearchReward,
    weights: Weights,
    credit: CreditSettings,
) -> Recipe:
    """Return the reward of each search and of the answer. Source: StepSearch, authors' code.

    Trainers read `credit`.
    """
    parts = replace(parts, answer=answer, reading=reading, reads_keys=weights.keys > 0)
    malformed = replace(malformed, reading=reading)
    names = ("answer", "search_keys", "gain", "redundancy")
    compared, keys, gain, redundancy = (Component(parts, name, default=0.0) for name in names)
    if parts.process == "coverage":
        covered = weighted((1, compared), (weights.coverage, gain))
        total = weighted((1, Product((covered, Component(parts, "efficiency")))), (1, malformed))
    else:
        step = weighted((1, gain), (-weights.redundancy, redundancy))
        total = weighted((1, compared), (weights.keys, keys), (weights.step, step), (1, malformed))
    components: tuple[Reward, ...] = (*(Component(parts, name) for name in names), malformed)
    return Recipe("stepsearch", components, total, correct=CorrectOf(parts))


_TRAINING = "authors' code at 43215ba: training scripts"
TRAINING = Training(
    learning_rate=Stated(5e-7, _TRAINING),
    kl_weight=Stated(0.001, _TRAINING),
    notes=(
        "the authors train with PPO and GAE, with at most 5 turns; the advantages of turns in a "
        "group (method return) are a combination of this package",
        "the loss ignores the tokens of the results",
    ),
)

STEPSEARCH = RecipeDefinition(
    name="stepsearch",
    summary="the answer of a search agent, its search keys, and the information gain of each "
    "search minus its repeated results",
    source="StepSearch, authors' code at 43215ba",
    output=OUTPUT,
    parts={
        **TURNS,
        "answer": Part(
            AnswerMatch("answer", metric="f1"),
            prefix="accuracy",
            fixed=("metric", "reads", "extra"),
        ),
        "parts": Part(StepSearchReward(), prefix=""),
        "weights": Part(Weights(), prefix=""),
        "credit": CreditSettings(method="return"),
    },
    sources={
        "accuracy.normalizer": CODE,
        "credit.method": "ours: the authors train with PPO, which needs no groups",
    },
    build=stepsearch,
    fields=(
        "answers",
        "turns",
        "search_keys (keys.weight > 0)",
        "gold_documents",
        "supporting (without gold_documents)",
    ),
    components=(
        ComponentInfo(
            "answer", "token F1 of the answer, or bad_end if the rollout has no valid end", -1.0
        ),
        ComponentInfo(
            "search_keys", "mean over the search keys of the F1 of the query that serves the key"
        ),
        ComponentInfo(
            "gain",
            "sum over the searches of the rise of the similarity to the gold documents, or of the "
            "share of gold documents",
        ),
        ComponentInfo(
            "redundancy",
            "sum over the searches of the share of results that earlier ones repeat",
            0.0,
            None,
        ),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    baselines=SEARCH_PROMPTS,
    training=TRAINING,
    data=TrainingData(("musique",), "authors' code at 43215ba"),
    hardened={
        **HARDENED,
        **shared.ANSWER,
        "keys.assign": HardenedSetting(
            "best", (49,), "a query that takes the place of an earlier one"
        ),
    },
    loopholes=(
        Loophole(
            (1, 2, 9, 10, 25, 30), "the F1 of a text that contains the gold answer is above 0"
        ),
        Loophole((6,), "the normalizer squad treats 3.14 as 314 and C++ as C"),
        Loophole((7,), "the last of many answer sections counts"),
        Loophole((16, 24), "an answer without content earns 0 and not bad_end"),
        Loophole(
            (33,),
            "in a transcript, a results block after a query counts as a search, even if the "
            "policy wrote it",
        ),
        Loophole((43,), "invalid turns until the limit cost nothing"),
    ),
    deviations=(
        "a query that fits no search key changes no key; the authors' code then sets the last key "
        "to 0",
        "a supporting document that no search found, of a row without gold_documents, has the "
        "similarity 0; the authors always have the texts",
        "process=coverage compares the texts of gold_documents with those of the results if a row "
        "has no supporting; InForage compares ids",
        "the reward of a search is at the end of its turn; the authors write it at the closing tag "
        "of the query",
    ),
)
