r"""The output forms of the recipes, with short instructions and supervised examples for a warm-up.

The instructions of the recipes are longer; a short one saves a fifth of the tokens of a prompt, and
the warm-up teaches the form. The warm-up's examples come from training questions. They contain
abstentions and mistakes, so that a reward finds responses to prefer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from language_model.questions import Question, contains

import rag_rewards as rr
from rag_rewards.prompts import LAYOUT, Prompt
from rag_rewards.text.refusal import REFUSAL

ABSTENTION = "I don't know"
CONFIDENCES = ("0.1", "0.3", "0.5", "0.7", "0.9")


@dataclass(frozen=True)
class Target:
    """The content of a response of the warm-up.

    answer    None for an abstention
    cited     numbers of the cited documents
    title     title of the last cited document
    """

    answer: str | None
    cited: tuple[int, ...]
    title: str
    confidence: str = "0.5"

    @property
    def markers(self) -> str:
        return "".join(f"[{i}]" for i in self.cited)

    @property
    def thought(self) -> str:
        return f"{self.markers} {self.title}" if self.answer else "No document answers it."


@dataclass(frozen=True)
class Form:
    """An output form.

    write     the text of a response
    correct   recipe, with its settings, that decides whether a response of this form is right
    tokens    the most tokens of a response
    abstains  whether the abstention is the gold answer of an unanswerable question, for rewards
              that have no other way to reward a correct abstention
    """

    name: str
    instruction: str
    write: Callable[[Target], str] = field(repr=False)
    correct: tuple[str, dict[str, Any]]
    tokens: int = 48
    abstains: bool = False

    @property
    def prompt(self) -> Prompt:
        form = "[{label}] {title}: {text}"
        return Prompt(
            LAYOUT, document=form, untitled="[{label}] {text}", instruction=self.instruction
        ).showing(None, "\n")

    def row(self, question: Question) -> dict[str, Any]:
        """Return the question as a row of a data set: its fields and its prompt as messages."""
        row = question.row()
        row["prompt"] = self.prompt.messages(rr.decode_row({**row, "response": ""}))
        if self.abstains and not question.is_answerable:
            row["answers"] = [[ABSTENTION]]
        return row


ACCURACY = ("rag-total", {"alpha": 0.0, "beta": 1.0})
"""The accuracy of `ctrl-rag` alone."""
_THINK = "Answer from the documents: <think>documents that help, as in [1]</think>"
TRUTHRL = Form(
    "truthrl",
    f"{_THINK} \\boxed{{answer}}, or \\boxed{{{ABSTENTION}}}.",
    lambda t: f"<think>{t.thought}</think> \\boxed{{{t.answer or ABSTENTION}}}",
    ("truthrl", {"verifier": "exact"}),
)
ARENA = Form(
    "arena",
    "Answer from the documents: <relevance>[numbers of documents that help]</relevance>"
    f"<analysis>how they help</analysis><answer>a phrase, or {ABSTENTION}</answer>.",
    lambda t: (
        f"<relevance>{list(t.cited)}</relevance><analysis>{t.thought}</analysis>"
        f"<answer>{t.answer or ABSTENTION}</answer>"
    ),
    ("arena", {}),
    64,
    abstains=True,
)
GROUND = Form(
    "ground",
    f"{_THINK} <answer>a sentence with its documents, as in [1], or the refusal</answer>.",
    lambda t: (
        f"<think>{t.thought}</think> <answer>"
        f"{f'The answer is {t.answer} {t.markers}.' if t.answer else REFUSAL}</answer>"
    ),
    ("ground-grpo", {"citation.judge_by": "gold"}),
    64,
)
CTRL = Form(
    "ctrl",
    f"Answer from the documents in a sentence with citations, as in [1], or write {ABSTENTION}.",
    lambda t: (
        f"According to {t.title} {t.markers}, the answer is {t.answer}."
        if t.answer
        else f"{ABSTENTION}."
    ),
    ACCURACY,
)
RLCR = Form(
    "rlcr",
    f"{_THINK}<answer>a phrase</answer><analysis>what could be wrong</analysis>"
    "<confidence>probability that it is right</confidence>.",
    lambda t: (
        f"<think>{t.thought}</think><answer>{t.answer or t.title}</answer>"
        f"<analysis>It may be wrong.</analysis><confidence>{t.confidence}</confidence>"
    ),
    ("rlcr", {}),
    64,
)
FORMS = {form.name: form for form in (TRUTHRL, ARENA, GROUND, CTRL, RLCR)}

RIGHT, ABSTAINS, ABSTAINS_UNANSWERABLE, RIGHT_CITATION = 0.75, 0.6, 0.5, 0.75
"""Shares of the warm-up: right answers of answerable questions, abstentions among the others, right
abstentions of unanswerable questions, and responses that cite exactly the supporting documents."""


def target(question: Question, rng: random.Random) -> Target:
    """Draw the content of a response for the warm-up, with the mistakes of the shares above.

    A wrong answer is the title of a document without the answer. Form `rlcr` has no abstention, so
    that its response is wrong instead. The confidence is drawn without regard to the answer.
    """
    confidence = rng.choice(CONFIDENCES)
    positions = range(1, len(question.documents) + 1)
    cited = question.supporting
    if not cited or rng.random() >= RIGHT_CITATION:
        cited = tuple(sorted(rng.sample(positions, rng.choice((1, 1, 2)))))
    title = question.documents[cited[-1] - 1][0]
    is_right = question.is_answerable and rng.random() < RIGHT
    abstains = rng.random() < (ABSTAINS if question.is_answerable else ABSTAINS_UNANSWERABLE)
    if is_right:
        return Target(question.answer, cited, title, confidence)
    titles = [each for each, _ in question.documents if not contains(each, question.answer)]
    wrong = rng.choice(titles)
    if abstains:
        return Target(None, (), wrong, confidence)
    return Target(wrong, cited, title, confidence)
