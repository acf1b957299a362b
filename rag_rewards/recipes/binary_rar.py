"""Binary RAR: 1 for a response that no document contradicts, else 0.

The released code does not state the parameters of BM25.
"""

from __future__ import annotations

from dataclasses import replace

from rag_rewards.compose import weighted
from rag_rewards.definition import ComponentInfo, HardenedSetting, Loophole, RecipeDefinition
from rag_rewards.prompts import OutputForm, Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import shared
from rag_rewards.recipes.turn_settings import HARDENED, TURNS, exact_match
from rag_rewards.reward import CorrectOf
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.contradiction import Consistency
from rag_rewards.rewards.search import MalformedTurns
from rag_rewards.settings import Part
from rag_rewards.training.settings import Stated, Training
from rag_rewards.turns.trajectory import Reading

_CODE = "released code at d97ea69: train.py"

OUTPUT = OutputForm("<think>…</think> <answer>…</answer>", required=False)
PROMPT = Prompt(
    "{instruction}\n\nQuestion: {question}",
    instruction="Think about the question inside <think> and </think>. Then answer it inside "
    "<answer> and </answer>: state what you know, with the details that help, and leave out what "
    "you are not sure of.",
)


def binary_rar(
    reading: Reading, malformed: MalformedTurns, answer: AnswerMatch, reward: Consistency
) -> Recipe:
    """Return the consistency with the documents, at the last turn. Source: Binary RAR."""
    reward = replace(reward, answer=answer, reading=reading)
    components = (reward, replace(malformed, reading=reading))
    total = weighted(*((1, part) for part in components))
    return Recipe("binary-rar", components, total, correct=CorrectOf(reward))


TRAINING = Training(
    prompts=Stated(16, _CODE),
    group=Stated(8, _CODE),
    learning_rate=Stated(1e-6, _CODE),
    kl=Stated("k3", _CODE),
    kl_weight=Stated(0.001, _CODE),
    notes=(
        "the verifier of the released code is Qwen3-32B without thinking",
        "nothing in the reward asks for informative responses; the KL term has to",
    ),
)

BINARY_RAR = RecipeDefinition(
    name="binary-rar",
    summary="1 if no document contradicts the response, otherwise 0",
    source="Binary RAR, released code at d97ea69",
    output=OUTPUT,
    parts={
        **TURNS,
        "answer": exact_match("answer"),
        "reward": Part(Consistency(), prefix="", fixed=("chunk_words",)),
    },
    build=binary_rar,
    fields=("documents", "turns", "verdicts.consistent"),
    components=(
        ComponentInfo(
            "consistent", "1 if no document contradicts the response, otherwise 0", values=(0, 1)
        ),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    training=TRAINING,
    hardened={
        **HARDENED,
        **shared.LIST,
        "empty": HardenedSetting(
            0, (20, 46), "an empty text or a refusal, which no document contradicts"
        ),
    },
    loopholes=(
        Loophole((20,), "a heading without a statement earns the full reward"),
        Loophole(
            (21,),
            "with by=judge, the reward is as reliable as the judge; the hardened profile asks it "
            "only about a response that states a gold answer, or of a row without one",
            variants={21: ("verdict-beside-the-gold-answer",)},
        ),
        Loophole(
            (25,),
            "a copy of the documents earns the full reward, because they do not contradict it",
            variants={25: ("copied-documents",)},
        ),
        Loophole((46,), "an empty text or a refusal earns the full reward"),
        Loophole(
            (46,),
            "a vague text earns the full reward, because no document contradicts it; under the "
            "hardened profile, only for a row without gold answers",
            variants={46: ("vague-without-gold-answers",)},
        ),
        Loophole(
            (47,),
            "instructions to the judge in a retrieved page reach the judge; the prompt marks the "
            "page as material; the hardened profile asks the judge only about a response that "
            "states a gold answer, or of a row without one",
            variants={47: ("instructions-beside-the-gold-answer",)},
        ),
    ),
    deviations=(
        "a verifier that fails leaves the rollout unscored; the released code counts it as 0",
        "a chunk has 512 words; the released code counts tokens",
    ),
)
