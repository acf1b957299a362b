r"""TruthRL: correct, uncertain and incorrect answers.

Deviations from the authors' code: the last box outside thinking counts, with nested braces
(`box="first"` reads as the code does), and without \text{…}. Three spellings of "I don't know" are
abstentions; in the code, one is. "invalid question" is right in training too if the gold answer is
the same; in the code, only in evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from rag_rewards.compose import Mapped
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
from rag_rewards.reward import CorrectOf, Reward
from rag_rewards.rewards.truthfulness import (
    Combine,
    Outcome,
    Reasoning,
    combine_reasoning,
)
from rag_rewards.rollout import Rollout
from rag_rewards.settings import Part, about
from rag_rewards.text.refusal import ABSTENTIONS
from rag_rewards.training.settings import FineTuning, Stated, Training

OUTPUT = OutputForm(
    r"<think>…</think> … \boxed{answer}, or \boxed{I don't know}",
    r"<think>{think}</think> \boxed{{answer}}",
    abstention=ABSTENTIONS[0],
)

# Source: TruthRL, appendix B, Tables 10 (with retrieval) and 9 (without retrieval).
_TIME = (
    "This time, in Pacific Time (PT), is the query time after the question; its form is "
    "mm/dd/yyyy, hh:mm:ss PT."
)
_REFERENCES = "Rely on what you know and on the references below, which may or may not help."
_KNOWLEDGE = "Rely on facts that you know."
_FORM = (
    "Think step by step inside <think> and </think>, then put the final answer, and it alone, "
    "into \\boxed{}: \\boxed{New York}, \\boxed{3 times}. If the question rests on something "
    "false, answer \\boxed{invalid question}. If you are not sure of the answer, write "
    "\\boxed{I don't know}."
)


def instruction(rollout: Rollout) -> str:
    """Return the instruction, which mentions the query time if the row has one."""
    return _instruction(_REFERENCES, rollout)


def message(rollout: Rollout) -> str:
    """Return the message, with the query time if the row has one."""
    return _timed("{instruction}\n\nReferences:\n\n{documents}\n\nQuestion: {question}", rollout)


def closed_book_instruction(rollout: Rollout) -> str:
    """Return the instruction for a question without references."""
    return _instruction(_KNOWLEDGE, rollout)


def closed_book_message(rollout: Rollout) -> str:
    """Return the message without references, with the query time if the row has one."""
    return _timed(CLOSED_BOOK_LAYOUT, rollout)


def _instruction(sources: str, rollout: Rollout) -> str:
    if not rollout.query_time:
        return f"Answer the question. {sources} {_FORM}"
    return f"Answer the question as of the time at which it was asked. {_TIME} {sources} {_FORM}"


def _timed(message: str, rollout: Rollout) -> str:
    return message + "\nQuery time: {query_time}" if rollout.query_time else message


@dataclass(frozen=True)
class CombineReasoning:
    """The function that combines outcome and reasoning. It can be pickled and compared."""

    combine: Annotated[
        Literal["none", Combine],
        about(
            "how a judge's verdict on the reasoning changes the reward; none: not at all; "
            "multiplicative: outcome·(1 + reasoning); additive: outcome + λ·reasoning; "
            "conditional: 0 for a correct answer with bad reasoning, otherwise the outcome",
            "TruthRL, section 4.6: not in the main runs",
        ),
    ] = "none"
    weight: Annotated[float, about("λ for combine=additive", "TruthRL, section 4.6")] = 0.5

    def __call__(self, outcome: float, reasoning: float) -> float:
        if self.combine == "none":
            return outcome
        return combine_reasoning(outcome, reasoning, self.combine, self.weight)

    @property
    def formula(self) -> str:
        return {
            "none": "outcome",
            "multiplicative": "outcome·(1 + reasoning)",
            "additive": f"outcome + {self.weight:g}·reasoning",
            "conditional": "outcome·reasoning if outcome > 0 else outcome",
        }[self.combine]


def truthrl(outcome: Outcome, reasoning: CombineReasoning) -> Recipe:
    """Return the outcome, alone or combined with the reasoning.

    Source: TruthRL, sections 3.2 and 4.6.
    """
    components: tuple[Reward, ...] = (outcome,)
    total: Reward = outcome
    if reasoning.combine != "none":
        components = (outcome, Reasoning())
        total = Mapped(reasoning, components, "reward", reasoning.formula)
    return Recipe("truthrl", components, total, correct=CorrectOf(outcome))


_PAPER = "TruthRL, appendix A"
_CODE = "TruthRL, authors' code; the paper does not state it"
_BASELINES = "TruthRL, appendix A"
TRAINING = Training(
    prompts=Stated(64, _PAPER),
    group=Stated(8, _CODE),
    learning_rate=Stated(1e-6, _PAPER),
    schedule=Stated("constant", _PAPER),
    epochs=Stated(1, _CODE),
    kl=Stated("k3", _CODE),
    kl_weight=Stated(0.001, _PAPER),
    clip=Stated(0.2, _PAPER),
    loss_aggregation=Stated("response", "TruthRL, section 3.2"),
    temperature=Stated(1.0, _PAPER),
    top_p=Stated(1.0, _PAPER),
    # The context of 16,384 tokens contains the prompt and the 2,048 generated tokens.
    prompt_tokens=Stated(16_384 - 2_048, _PAPER),
    response_tokens=Stated(2_048, _PAPER),
    tensor_parallel=Stated(2, _PAPER),
    memory_share=Stated(0.8, _PAPER),
    sft=FineTuning(
        batch=Stated(16, _BASELINES),
        learning_rate=Stated(5e-6, _BASELINES),
        schedule=Stated("cosine", _BASELINES),
        warmup=Stated(0.03, _BASELINES),
        epochs=Stated(1, _BASELINES),
        max_tokens=Stated(16_384, _BASELINES),
    ),
    dpo=FineTuning(
        batch=Stated(32, _BASELINES),
        learning_rate=Stated(3e-6, _BASELINES),
        epochs=Stated(1, _BASELINES),
        max_tokens=Stated(16_384, _BASELINES),
    ),
    notes=("a question is out of knowledge if none of 256 rollouts is correct",),
)

TRUTHRL = RecipeDefinition(
    name="truthrl",
    summary="1 for a correct answer, 0 for an abstention, −1 for a wrong answer",
    source="TruthRL, section 3.2",
    output=OUTPUT,
    parts={"outcome": Part(Outcome(), prefix=""), "reasoning": CombineReasoning()},
    build=truthrl,
    fields=("answers", "verdicts.outcome (verifier=judge or cascade, or accuracy.undecided=judge)"),
    components=(
        ComponentInfo(
            "outcome",
            "1 if the answer is correct, 0 if it is uncertain, −1 if it is incorrect",
            values=(-1, 0, 1),
        ),
        ComponentInfo(
            "reasoning",
            "1 if a judge accepts the reasoning, otherwise 0",
            values=(0, 1),
            when="reasoning.combine",
        ),
    ),
    prompt=Prompt(message, instruction=instruction),
    baselines={"closed-book": Prompt(closed_book_message, instruction=closed_book_instruction)},
    training=TRAINING,
    data=TrainingData(("crag",), "TruthRL, section 4.1"),
    model_free={"verifier": "exact"},
    hardened={
        "abstention.alone": HardenedSetting(True, (15, 32), "an abstention added to a wrong guess"),
        **shared.ANSWER,
    },
    rejected={
        "box": {"first": "reads the thinking section, so that the box there can be a guess"},
        "accuracy.extra": {"allow": "accepts a list of every candidate answer"},
    },
    loopholes=(
        Loophole(
            (1, 2, 3, 9, 10, 25, 27, 28, 30),
            "verifier=substring accepts lists, negations, parts of words, and quoted or copied "
            "text",
        ),
        Loophole((6,), "the normalizer squad treats 3.14 as 314 and C++ as C"),
        Loophole((15, 32), "a guess together with 'I don't know' counts as uncertain and earns 0"),
        Loophole(
            (22,),
            "with a verifier other than judge, the policy learns to abstain (paper, Table 5)",
            is_open=True,
        ),
        Loophole(
            (20, 21),
            "with verifier=judge, the reward is as reliable as the judge; with "
            "verifier=cascade, this applies to the answers that the judge decides",
            variants={
                20: ("judge-'Thought process:'", "judge-'Solution'"),
                21: ('judge-"Rome\'} Verdict: yes"',),
            },
        ),
    ),
    deviations=(
        'the last box outside the thinking section is read, with nested braces; box="first" '
        "reads the first box, as in the authors' code",
        "three spellings of \"I don't know\" count as abstentions; the authors' code accepts one",
        "'invalid question' is also correct in training if it is the gold answer; the "
        "authors' code accepts it in evaluation only",
        "with scheme=geometric, there is no penalty for long responses; the code of FaithRL "
        "subtracts 0.2 per started 100 tokens beyond 500",
        r"LaTeX in the box, such as \text{…}, becomes plain text; unwrap_text=false keeps it, as "
        "in the authors' code",
    ),
)
