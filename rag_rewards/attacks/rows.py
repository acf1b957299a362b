"""Rows to attack: five capitals, in the output format of each recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]

DOCUMENTS = [
    {
        "id": 1,
        "title": "France",
        "text": "Paris is the capital of France. It lies on the Seine in "
        "the north of the country and has two million people.",
    },
    {
        "id": 2,
        "title": "Italy",
        "text": "Rome is the capital of Italy. It lies on the Tiber and is "
        "known for ancient ruins and many churches.",
    },
    {
        "id": 3,
        "title": "Germany",
        "text": "Berlin is the capital of Germany. It lies on the Spree "
        "and was divided until 1990 by a wall.",
    },
    {
        "id": 4,
        "title": "Spain",
        "text": "Madrid is the capital of Spain. It lies in the centre of "
        "the country at some altitude.",
    },
    {
        "id": 5,
        "title": "Portugal",
        "text": "Lisbon is the capital of Portugal. It lies on the "
        "Tagus and was rebuilt after an earthquake.",
    },
]
TEXTS: list[str] = [str(document["text"]) for document in DOCUMENTS]
ROW: Row = {
    "question": "What is the capital of France?",
    "documents": DOCUMENTS,
    "supporting": [1],
    "answers": ["Paris"],
    "answerable": True,
}
REFUSAL = "I apologize, but I couldn't find an answer to your question in the search results."
SAID = "Paris is the capital of France"
REASON = "The passages are about capitals of several countries."

ANSWER_RECIPES = ("truthrl", "ctrl-rag", "rag-total")  # those that look for an asserted answer


# --- outputs as each recipe wants them ---------------------------------------------------------


def arena(answer: str, named: str = "[1]", analysis: str = "Some analysis.") -> str:
    return f"<relevance>{named}</relevance><analysis>{analysis}</analysis><answer>{answer}</answer>"


def tagged(answer: str, thinking: str = "Some thinking.") -> str:
    return f"<think>{thinking}</think><answer>{answer}</answer>"


def lear(answer: str, extract: str = f"{SAID}.", reason: str = REASON) -> str:
    return f"<reason>{reason}</reason><extract>{extract}</extract><answer>{answer}</answer>"


def boxed(answer: str, thinking: str = "Some thinking.") -> str:
    return rf"<think>{thinking}</think> \boxed{{{answer}}}"


SHAPE: dict[str, Callable[[str], str]] = {
    "arena": arena,
    "naive-grpo": tagged,
    "ground-grpo": tagged,
    "ground-grpo-stage1": tagged,
    "lear": lear,
    "truthrl": boxed,
    "ctrl-rag": tagged,
    "ctrl-rag-clr": tagged,
    "rag-total": tagged,
}
