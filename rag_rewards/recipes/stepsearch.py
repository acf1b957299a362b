"""StepSearch: an agent that searches in several turns, with a reward for each search.

Deviations from the authors' code: a query that fits no search key changes no key, where the code
sets the last key to 0. The reward of a search is at the end of its turn, where the code writes it
at the closing tag of the query.
"""

from __future__ import annotations

from typing import Annotated, Literal

from rag_rewards.compose import Product, weighted
from rag_rewards.definition import (
    ChangedDefault,
    ComponentInfo,
    HardenedSetting,
    Loophole,
    Recipe,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.recipes import shared
from rag_rewards.recipes.search_r1 import OUTPUT, PROMPT, SEARCH_PROMPTS
from rag_rewards.recipes.turn_settings import CHANGED, HARDENED, UNICODE, DecidedSettings
from rag_rewards.reward import Component, CorrectOf, Reward
from rag_rewards.rewards.stepsearch import Assign, Process, StepSearchReward
from rag_rewards.settings import Settings, about
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.training.credit.settings import CreditMethod, CreditSettings
from rag_rewards.training.settings import Stated, Training

_CODE = "authors' code at 43215ba: qa_step.py"
_MAIN = "authors' code at 43215ba: main_ppo.py"
_INFORAGE = "InForage, authors' code at fe5f0b1"


class KeySettings(Settings, frozen=True):
    weight: Annotated[float, about("weight of the search keys; 0: no keys needed", _CODE, ge=0)] = (
        0.618
    )
    assign: Annotated[
        Assign,
        about(
            "query that counts for a search key; last: the last one that fits it; best: the one "
            "with the greatest F1",
            _CODE,
        ),
    ] = "last"


class StepSettings(Settings, frozen=True):
    scale: Annotated[
        float,
        about(
            "factor of the reward of a search",
            f"{_MAIN}; there, the reward is added to itself, so that 1.6 reproduces the runs",
            ge=0,
        ),
    ] = 0.6


class RedundancySettings(Settings, frozen=True):
    weight: Annotated[
        float, about("weight of the share of results that earlier ones repeat", _CODE, ge=0)
    ] = 1.0


class CoverageSettings(Settings, frozen=True):
    weight: Annotated[
        float, about("with process=coverage, weight of the coverage", _INFORAGE, ge=0)
    ] = 0.2
    of: Annotated[
        Literal["turn", "all"],
        about(
            "with process=coverage, results that are compared with the gold documents; turn: of "
            "one search; all: of all searches so far",
            _INFORAGE,
        ),
    ] = "turn"


class Credit(CreditSettings, frozen=True):
    method: Annotated[
        CreditMethod,
        about(
            "advantages of the turns in a group; group: all turns share the advantage of the "
            "reward (the authors train with PPO, which needs no groups)"
        ),
    ] = "return"


class StepSearch(DecidedSettings, frozen=True):
    """Settings of StepSearch."""

    process: Annotated[
        Process,
        about(
            "reward of a search; tfidf: rise of the similarity to the gold documents, minus "
            "repeated results; coverage (InForage): rise of the share of gold documents",
            f"{_CODE}: tfidf",
        ),
    ] = "tfidf"
    normalizer: Annotated[NormalizerName, about("text normalizer of the answer", _CODE)] = "squad"
    bad_end: Annotated[
        float,
        about("reward of a rollout without an answer, or with words after it", _CODE, le=0),
    ] = -1.0
    efficiency: Annotated[
        float,
        about(
            "with process=coverage and T ≥ 4 turns, all rewards are multiplied by efficiency^(T−2)",
            _INFORAGE,
            ge=0,
            le=1,
        ),
    ] = 0.95
    keys: KeySettings = KeySettings()
    step: StepSettings = StepSettings()
    redundancy: RedundancySettings = RedundancySettings()
    coverage: CoverageSettings = CoverageSettings()
    credit: Credit = Credit()


def stepsearch(settings: StepSearch) -> Recipe:
    """Return the reward of each search and of the answer. Source: StepSearch, authors' code."""
    parts = StepSearchReward(
        process=settings.process,
        answer=settings.decided_match("answer", "f1"),
        reading=settings.reading(),
        repeated=settings.repeated_answer,
        reads_keys=settings.keys.weight > 0,
        assign=settings.keys.assign,
        bad_end=settings.bad_end,
        of=settings.coverage.of,
        factor=settings.efficiency,
    )
    names = ("answer", "search_keys", "gain", "redundancy")
    answer, keys, gain, redundancy = (Component(parts, name, default=0.0) for name in names)
    malformed = settings.malformed_turns()
    if settings.process == "coverage":
        covered = weighted((1, answer), (settings.coverage.weight, gain))
        total = weighted((1, Product((covered, Component(parts, "efficiency")))), (1, malformed))
    else:
        step = weighted((1, gain), (-settings.redundancy.weight, redundancy))
        total = weighted(
            (1, answer), (settings.keys.weight, keys), (settings.step.scale, step), (1, malformed)
        )
    components: tuple[Reward, ...] = (*(Component(parts, name) for name in names), malformed)
    return Recipe("stepsearch", components, total, correct=CorrectOf(parts), settings=settings)


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
    settings=StepSearch,
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
        "normalizer": UNICODE,
        "undecided": shared.UNDECIDED,
        "keys.assign": HardenedSetting(
            "best", (49,), "a query that takes the place of an earlier one"
        ),
    },
    loopholes=(
        Loophole(
            (1, 2, 9, 10, 25, 30),
            "the F1 of a text that contains the gold answer is above 0",
            is_closed=True,
        ),
        Loophole((6,), "the normalizer squad treats 3.14 as 314 and C++ as C", is_closed=True),
        Loophole((7,), "the last of many answer sections counts", is_closed=True),
        Loophole((16, 24), "an answer without content earns 0 and not bad_end", is_closed=True),
        Loophole(
            (33,),
            "in a transcript, a results block after a query counts as a search, even if the "
            "policy wrote it",
            is_closed=True,
        ),
        Loophole((43,), "invalid turns until the limit cost nothing", is_closed=True),
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
    changed_defaults=(
        ChangedDefault("0.8.0", "credit.std_floor", default=0.0, hardened=0.0),
        *CHANGED,
    ),
)
