"""AutoRefine: an agent that notes the relevant part of the results after each search."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rag_rewards.compose import Mapped, weighted
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
from rag_rewards.recipes.search_r1 import SEARCH_PROMPTS
from rag_rewards.recipes.turn_settings import HARDENED, TURNS, compared_answer
from rag_rewards.reward import Component
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.refinement import CODE, Refinement, refined_reward
from rag_rewards.rewards.search import MalformedTurns, SearchR1Reward
from rag_rewards.settings import Part
from rag_rewards.training.settings import Stated, Training
from rag_rewards.turns.trajectory import Reading

_SCRIPT = "released code at 8363788: train.sh"

OUTPUT = OutputForm("<think>…</think> <search>…</search> … <refine>…</refine> … <answer>…</answer>")
PROMPT = Prompt(
    CLOSED_BOOK_LAYOUT,
    instruction="Answer the question below with the help of a search engine. Reason about what you "
    "have inside <think> and </think>. If a fact is missing, write a query inside <search> and "
    "</search>; the best documents follow between <information> and </information>. After each "
    "search, write down what these documents say about the question inside <refine> and </refine>. "
    "Search as often as you need. Then give a short answer alone inside <answer> and </answer>.",
)


def autorefine(
    reading: Reading,
    malformed: MalformedTurns,
    answer: AnswerMatch,
    parts: SearchR1Reward,
    refinement: Refinement,
) -> Recipe:
    """Return F1 if it is above 0, else .1·refined, at the last turn. Source: AutoRefine."""
    parts = replace(parts, answer=answer, reading=reading, match=refinement.match)
    malformed = replace(malformed, reading=reading)
    refinement = replace(refinement, answer=answer, reading=reading)
    outcome, retrieval = (Component(parts, name) for name in ("outcome", "retrieval"))
    reward = Mapped(
        partial(refined_reward, weight=refinement.weight),
        (outcome, refinement),
        "",
        f"outcome + [outcome = 0]·{refinement.weight:g}·refined",
    )
    total = weighted((1, reward), (1, malformed))
    components = (outcome, refinement, retrieval, malformed)
    return Recipe("autorefine", components, total, correct=outcome)


TRAINING = Training(
    prompts=Stated(256, _SCRIPT),
    group=Stated(5, _SCRIPT),
    learning_rate=Stated(1e-6, _SCRIPT),
    kl=Stated("k3", _SCRIPT),
    kl_weight=Stated(0.001, _SCRIPT),
    temperature=Stated(1.0, _SCRIPT),
    notes=(
        "at most 5 turns, with 3 documents and 512 tokens per search, and 300 steps",
        "the loss ignores the tokens of the results",
    ),
)

AUTOREFINE = RecipeDefinition(
    name="autorefine",
    summary="the token F1 of the answer, and a small reward for notes that contain a gold answer",
    source=CODE,
    output=OUTPUT,
    parts={
        **TURNS,
        "answer": compared_answer("f1", "exact", "substring"),
        "parts": Part(SearchR1Reward(), prefix=""),
        "refinement": Part(Refinement(), prefix="refine"),
    },
    sources={"accuracy.metric": _SCRIPT, "accuracy.normalizer": CODE},
    build=autorefine,
    fields=("answers", "turns"),
    components=(
        ComponentInfo("outcome", "token F1 of the answer of the last turn"),
        ComponentInfo(
            "refined",
            "1 if there is an answer and <refine> contains the gold answer",
            values=(0, 1),
        ),
        ComponentInfo(
            "retrieval", "1 if the results of a search contain the gold answer", values=(0, 1)
        ),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    baselines=SEARCH_PROMPTS,
    training=TRAINING,
    data=TrainingData(("nq", "hotpotqa"), _SCRIPT),
    hardened={
        **HARDENED,
        **shared.LIST,
        "refine.match": HardenedSetting(
            "words", (40,), "notes in which the gold answer is only part of a word"
        ),
        "refine.from_results": HardenedSetting(
            True, (40,), "notes that list candidate answers which no search returned"
        ),
    },
    loopholes=(
        Loophole(
            (1, 2, 9, 10, 25, 30), "the F1 of a text that contains the gold answer is above 0"
        ),
        Loophole((7,), "the last of many answer sections counts"),
        Loophole(
            (23,),
            "notes that copy the results contain the gold answer if a result does",
            variants={23: ("results copied into the notes",)},
        ),
        Loophole(
            (36,),
            "an answer without a search earns the full reward",
            variants={36: ("answer from memory",)},
        ),
        Loophole((40,), "notes that list candidate answers earn the reward of the refinement"),
        Loophole((43,), "invalid turns until the limit cost nothing"),
    ),
    deviations=(
        "the results of a transcript are between the tags of the dialect; the released code writes "
        "<documents>, so give such rollouts in the field turns",
        "only the words of the policy are read; the released code also reads <refine> and <answer> "
        "in retrieved pages",
        "an answer that shares a word with the gold answer yes or no has an F1 above 0; the "
        "released code requires the same answer",
        "the setting format_score of the released code is 0 in its script, and is not available",
    ),
)
