"""s3: a search agent whose documents help a frozen generator more than the first documents do.

The paper's reward is the gain alone. The released code (USE_GENERATION_SCORE) adds the accuracy
with the selected documents once more: `weights.accuracy=1` reproduces it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from rag_rewards.compose import weighted
from rag_rewards.definition import ComponentInfo, Loophole, RecipeDefinition
from rag_rewards.prompts import CLOSED_BOOK_LAYOUT, LAYOUT, OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes.turn_settings import HARDENED, TURNS
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.generated_answer import FromDocuments, FromSelection, GeneratedAnswer
from rag_rewards.rewards.search import MalformedTurns
from rag_rewards.settings import Part, about
from rag_rewards.training.settings import Stated, Training
from rag_rewards.turns.trajectory import Reading

_CODE = "released code at ba08d58: rag_2.py"
_SCRIPT = "released code at ba08d58: train_s3.sh"

OUTPUT = OutputForm("<think>…</think> <search>…</search> … <answer>complete</answer>")
PROMPT = Prompt(
    LAYOUT,
    instruction="You search for a model that answers the question below and sees only the "
    "documents that you select. Reason inside <think> and </think>. After each block of documents, "
    "also the first one, write the numbers of up to three that help to answer the question, as in "
    "<important_info>[1, 4]</important_info>. If the documents do not suffice, call the search "
    "engine with <search> query </search>; it returns documents between <information> and "
    "</information>. If they suffice, end with <answer>complete</answer>.",
)
_DIRECT = "Give the answer alone, without any other text and without your reasoning."
CHATS = (
    Prompt(
        LAYOUT,
        instruction="Answer the question below. Use the documents where they help; some can be "
        f"irrelevant. {_DIRECT}",
    ),
    Prompt(CLOSED_BOOK_LAYOUT, instruction=f"Answer the question below. {_DIRECT}"),
)
"""The prompts of the generator, with documents and without."""


@dataclass(frozen=True)
class Weights:
    """The weights of the components."""

    gain: Annotated[float, about("weight of the gain", _CODE)] = 1.0
    accuracy: Annotated[
        float,
        about(
            "weight of the accuracy with the selected documents, besides the gain",
            f"s3, abstract: 0; {_CODE}: 1",
        ),
    ] = 0.0


def s3(
    reading: Reading,
    malformed: MalformedTurns,
    answer: AnswerMatch,
    generated: GeneratedAnswer,
    weights: Weights,
) -> Recipe:
    """Return the accuracy with the selected documents − that with the first ones. Source: s3."""
    chosen = replace(generated, chat=FromSelection(*CHATS, reading), answer=answer)
    baseline = replace(chosen, chat=FromDocuments(*CHATS), name="baseline")
    malformed = replace(malformed, reading=reading)
    total = weighted(
        (weights.gain + weights.accuracy, chosen), (-weights.gain, baseline), (1, malformed)
    )
    return Recipe("s3", (chosen, baseline, malformed), total, correct=chosen)


TRAINING = Training(
    prompts=Stated(120, _SCRIPT),
    learning_rate=Stated(1e-6, _SCRIPT),
    kl_weight=Stated(0.001, _SCRIPT),
    temperature=Stated(0.6, _SCRIPT),
    prompt_tokens=Stated(8000, _SCRIPT),
    response_tokens=Stated(500, _SCRIPT),
    notes=(
        "the released code trains with PPO, one rollout per prompt, and at most 3 turns with 8 "
        "documents per search; its generator and judge is Qwen2.5-14B-Instruct",
        "the field generated_answers.baseline of a row saves the call for the baseline",
    ),
)

S3 = RecipeDefinition(
    name="s3",
    summary="how much the selected documents help a generator, compared with the first documents",
    source="s3, released code at ba08d58",
    output=OUTPUT,
    parts={
        **TURNS,
        "answer": Part(
            AnswerMatch("accuracy", metric="substring"),
            prefix="accuracy",
            fixed=("reads", "extra"),
            values={"metric": ("exact", "substring"), "undecided": ("match", "wrong")},
        ),
        "generated": Part(
            GeneratedAnswer(FromSelection(*CHATS)), prefix="", fixed=("temperature",)
        ),
        "weights": Weights(),
    },
    sources={"accuracy.metric": f"{_CODE}: whole words"},
    build=s3,
    fields=("answers", "documents (of the baseline)", "turns", "generated_answers"),
    components=(
        ComponentInfo(
            "accuracy", "1 if the generator answers right from the selected documents, otherwise 0"
        ),
        ComponentInfo("baseline", "the same from the documents of the row, or without documents"),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    training=TRAINING,
    hardened={key: HARDENED[key] for key in ("results_from", "malformed_penalty")},
    loopholes=(
        Loophole(
            (33,),
            "in a transcript, a results block after a query counts as a result, even if the policy "
            "wrote it",
        ),
        Loophole((43,), "invalid turns until the limit cost nothing"),
    ),
    deviations=(
        "queries and the end have the tags of the other recipes for search agents, <search> and "
        "<answer>, in place of <query> with JSON and <search_complete>",
        "a gold answer also counts inside a word; the released code compares whole words, and asks "
        "a judge about other answers (accuracy.by=judge)",
        "a generator or judge that fails leaves the rollout unscored; the released code counts an "
        "empty answer",
    ),
)
