"""Trust-Align, the baseline of Ground-GRPO: prompts without reasoning, and fine-tuning values.

Source: Trust-Align (Song et al. 2025), authors' code; Ground-GRPO, section 3.2.
"""

from __future__ import annotations

from rag_rewards.prompts import LAYOUT, Prompt
from rag_rewards.rollout import Rollout
from rag_rewards.text.refusal import REFUSAL
from rag_rewards.training.settings import FineTuning, Stated

# Source: Trust-Align's prompts of ASQA, ELI5 and QAMPARI. The instruction-tuned baselines of
# Ground-GRPO (section 3.2) answer without reasoning and without tags.
_INSTRUCTION = (
    "{task} Use only the documents below; some of them may be irrelevant to the question. If no "
    "document contains an answer, write exactly this sentence, without an explanation: " + REFUSAL
)
_STATEMENTS = (
    "Answer the question accurately, in few and readable sentences, and in the neutral tone of a "
    "news report. Each sentence must cite by number at least one and at most three documents that "
    "prove it. Cite as few documents as possible: [1] or [1][2]."
)
_LIST = (
    "List the answers to the question, separated by commas. After each answer, cite exactly one "
    "document that proves it by its number: [1]. If there are more than five answers, list at "
    "least five of them."
)


def instruction(rollout: Rollout) -> str:
    """Return the instruction of Trust-Align, which requests no reasoning and no tags."""
    task = _LIST if rollout.answer_kind == "list" else _STATEMENTS
    return _INSTRUCTION.replace("{task}", task)


# Source: Trust-Align, generation of positive responses: every gold answer, each with its number.
_GOLD_ANSWERS = Prompt(
    "{instruction}\n\nDocuments:\n\n{documents}\n\nQuestion: {question}\n\n{gold_answers}",
    instruction="Write a response to the question that contains all of the numbered answers, in "
    "at most four fluent sentences. Put the number of an answer in brackets after it, as in "
    "[Answer 1]. State no facts that do not follow from the numbered answers, and keep the wording "
    "of short answers. Reply with the response alone.",
)
PROMPTS = {"trust-align": Prompt(LAYOUT, instruction=instruction), "gold-answers": _GOLD_ANSWERS}

_SOURCE = "Trust-Align, authors' code"
SFT = FineTuning(
    batch=Stated(72, f"{_SOURCE}: 2 rows, 18 steps, 2 GPUs"),
    learning_rate=Stated(2e-5, _SOURCE),
    schedule=Stated("cosine", _SOURCE),
    warmup=Stated(0.1, _SOURCE),
    epochs=Stated(2, _SOURCE),
    max_grad_norm=Stated(1.0, _SOURCE),
    max_tokens=Stated(2048, _SOURCE),
)
DPO = FineTuning(
    batch=Stated(64, f"{_SOURCE}: 2 rows, 16 steps, 2 GPUs"),
    learning_rate=Stated(5e-7, _SOURCE),
    schedule=Stated("cosine", _SOURCE),
    warmup=Stated(0.1, _SOURCE),
    epochs=Stated(2, _SOURCE),
    beta=Stated(0.5, _SOURCE),
    max_tokens=Stated(2048, _SOURCE),
)
