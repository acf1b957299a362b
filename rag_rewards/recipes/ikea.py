"""IKEA: an agent that searches only for what it does not know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from rag_rewards.compose import Mapped, weighted
from rag_rewards.definition import ComponentInfo, Loophole, RecipeDefinition, TrainingData
from rag_rewards.prompts import CLOSED_BOOK_LAYOUT, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.recipes.search_r1 import OUTPUT, SEARCH_PROMPTS
from rag_rewards.recipes.turn_settings import HARDENED, TURNS, compared_answer
from rag_rewards.reward import Component
from rag_rewards.rewards.agent_form import AgentForm, boundary_reward
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.search import MalformedTurns, SearchR1Reward
from rag_rewards.settings import Part, about
from rag_rewards.training.settings import Stated, Training
from rag_rewards.turns.trajectory import Reading

_CODE = "IKEA, released code at 79c38e8: qa_em.py"
_SCRIPT = "released code at 79c38e8: train_grpo_kb.sh"

PROMPT = Prompt(
    CLOSED_BOOK_LAYOUT,
    instruction="Answer the question below in steps. First reason inside <think> and </think>: "
    "recall what you know, split the question if that helps, and decide whether a fact is missing "
    "or uncertain. Only then search for it, with a query for one fact inside <search> and "
    "</search>. The results follow between <information> and </information>, and you reason "
    "again. Prefer few searches; without a gap in your knowledge, do not search. At the end, give "
    "a short answer, without an explanation, inside <answer> and </answer>.",
)


@dataclass(frozen=True)
class Boundary:
    """The rewards of searches and of invalid rollouts."""

    bonus: Annotated[
        float, about("number that a right answer without a search gains", _CODE, ge=0)
    ] = 0.6
    limit: Annotated[
        int, about("number of searches from which a right answer gains nothing", _CODE, ge=1)
    ] = 3
    attempt: Annotated[float, about("reward of a wrong answer after a search", _CODE, ge=0)] = 0.05
    invalid: Annotated[float, about("reward of an invalid rollout", _CODE)] = -1.0


def ikea(
    reading: Reading,
    malformed: MalformedTurns,
    answer: AnswerMatch,
    parts: SearchR1Reward,
    boundary: Boundary,
) -> Recipe:
    """Return the reward of the answer and of the searches, at the last turn. Source: IKEA."""
    parts = replace(parts, answer=answer, reading=reading)
    malformed = replace(malformed, reading=reading)
    form = AgentForm("actions", reading)
    outcome = Component(parts, "outcome")
    valid, searches = (Component(form, name) for name in ("valid", "searches"))
    bonus, limit = boundary.bonus, boundary.limit
    reward = Mapped(
        partial(boundary_reward, **vars(boundary)),
        (outcome, valid, searches),
        "",
        f"valid·(outcome + [outcome > 0]·{bonus:g}·max(0, {limit} − searches)/{limit} + "
        f"[outcome = 0]·[searches > 0]·{boundary.attempt:g}) + (1 − valid)·({boundary.invalid:g})",
    )
    total = weighted((1, reward), (1, malformed))
    return Recipe("ikea", (outcome, valid, searches, malformed), total, correct=outcome)


TRAINING = Training(
    prompts=Stated(256, _SCRIPT),
    group=Stated(16, _SCRIPT),
    learning_rate=Stated(1e-7, _SCRIPT),
    warmup=Stated(0.75, _SCRIPT),
    epochs=Stated(2, _SCRIPT),
    kl=Stated("k3", _SCRIPT),
    kl_weight=Stated(0.001, _SCRIPT),
    temperature=Stated(1.0, _SCRIPT),
    notes=(
        "at most 3 turns, with 3 documents and 500 tokens per search",
        "the loss ignores the tokens of the results",
        "half of the questions are those that the policy can answer without a search",
    ),
)

IKEA = RecipeDefinition(
    name="ikea",
    summary="a right answer with as few searches as possible",
    source=_CODE,
    output=OUTPUT,
    parts={
        **TURNS,
        "answer": compared_answer("exact", "substring", "f1"),
        "parts": Part(SearchR1Reward(), prefix=""),
        "boundary": Boundary(),
    },
    sources={"accuracy.metric": _CODE, "accuracy.normalizer": _CODE},
    build=ikea,
    fields=("answers", "turns"),
    components=(
        ComponentInfo("outcome", "1 if the answer of the last turn is correct, otherwise 0"),
        ComponentInfo(
            "valid", "1 if the rollout has thinking and actions that can be read", values=(0, 1)
        ),
        ComponentInfo("searches", "number of searches with results, which can be empty", 0.0, None),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    baselines=SEARCH_PROMPTS,
    training=TRAINING,
    data=TrainingData(("nq", "hotpotqa"), _SCRIPT),
    hardened={**HARDENED, **shared.LIST},
    loopholes=(
        Loophole(
            (1,), "with several required answers, a list of every candidate answer counts as right"
        ),
        Loophole((6,), "the normalizer squad treats 3.14 as 314 and C++ as C"),
        Loophole((7,), "the last of many answer sections counts"),
        Loophole(
            (11,),
            "a rollout with empty sections is valid and earns 0",
            variants={11: ("empty sections",)},
        ),
        Loophole(
            (36,),
            "a right answer without a search earns the most: this is the aim of the recipe",
            variants={36: ("answer from memory",)},
        ),
        Loophole(
            (37,),
            "any search increases the reward of a wrong answer",
            variants={37: ("a needless search before a guess",)},
        ),
        Loophole((43,), "empty queries cost nothing"),
    ),
    deviations=(
        "only searches with results count; the released code counts the tag <search> in all words",
        "only the words of the policy are read; the released code also reads retrieved pages, so "
        "that a page with '(search' makes a rollout invalid",
        "for questions outside of its training set, the released code uses the exact match alone",
    ),
)
