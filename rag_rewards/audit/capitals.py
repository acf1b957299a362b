"""The built-in rows: questions about four of the capitals in the sample documents."""

from __future__ import annotations

from typing import Any

from rag_rewards.recipes.sample import DOCUMENTS

Row = dict[str, Any]

TEXTS: list[str] = [str(document["text"]) for document in DOCUMENTS]
CITIES = ("Paris", "Rome", "Berlin", "Madrid")
COUNTRIES = ("France", "Italy", "Germany", "Spain")

SAME_LIKELIHOOD: Row = {
    "logprobs": {"full": [-1.0] * 10, "without": {"1": [-2.0] * 10}, "answer_span": [0, 10]}
}
"""Log-probabilities for both sides of a comparison, so that only the texts differ."""


def question_row(number: int, response: str, **more: Any) -> Row:
    """Return a row about one of four countries, numbered from 0."""
    return {
        "question": f"What is the capital of {COUNTRIES[number]}?",
        "answers": [CITIES[number]],
        "supporting": [number + 1],
        "search_keys": [[f"capital of {COUNTRIES[number]}"]],
        "response": response,
        **more,
    }
