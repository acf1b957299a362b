"""A sample question, and a response to it in the output form of a recipe.

The examples of an output form are parts of a response to this question. The attacks use it, and its
needs show which models a recipe requires.
"""

from __future__ import annotations

from typing import Any

from rag_rewards.evidence.needs import ModelKind
from rag_rewards.prompts import OutputForm
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_row

DOCUMENTS: list[dict[str, Any]] = [
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
ROW: dict[str, Any] = {
    "question": "What is the capital of France?",
    "documents": DOCUMENTS,
    "supporting": [1],
    "answers": ["Paris"],
    "answerable": True,
    "search_keys": [["capital of France"]],
    "rubrics": ["<E0> is the capital of France.", "<E0> lies on the Seine."],
    "rubric": [
        {"criterion": "Paris is the capital of France.", "name": "capital", "weight": 3},
        {"criterion": "It names the river Seine.", "contains": "Seine", "name": "river"},
        {"criterion": "It has at most 60 words.", "max_words": 60, "name": "brief"},
    ],
}
STATEMENT = "Paris is the capital of France"


def sample_rollout(output: OutputForm) -> Rollout:
    """Return the sample question with a response that is a sentence with a citation.

    >>> sample_rollout(OutputForm("think, then answer")).response
    '<think>Some thinking.</think><answer>Paris is the capital of France [1].</answer>'
    """
    return decode_row(ROW | {"response": output.write(f"{STATEMENT} [1].")})


def sample_search() -> Rollout:
    """Return the sample question with a response of two turns, a search and the answer."""
    fields = {name: value for name, value in ROW.items() if name != "documents"}
    search = {
        "text": f"<think>I search.</think><search>{ROW['question']}</search>",
        "results": DOCUMENTS[:1],
    }
    answer = {"text": f"<think>I know it.</think><answer>{ROW['answers'][0]}</answer>"}
    return decode_row({**fields, "turns": [search, answer]})


def models_needed(recipe: Recipe) -> set[ModelKind]:
    """Return the kinds of models that a recipe needs for a response in its output form.

    >>> from rag_rewards.recipes import recipe
    >>> models_needed(recipe("truthrl")), models_needed(recipe("truthrl", {"verifier": "exact"}))
    ({'judge'}, set())
    """
    rollouts = [sample_rollout(recipe.output_form)]
    if recipe.needs_turns:
        rollouts.append(sample_search())
    return {need.model_kind for rollout in rollouts for need in recipe.needs(rollout)}
