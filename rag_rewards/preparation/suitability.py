"""Whether a recipe can score the responses to a question."""

from __future__ import annotations

from rag_rewards.datasets.gold import Gold, Problem, documents_contain_answers
from rag_rewards.definition import RecipeDefinition

GOLD_DOCUMENTS = "gold_documents"
"""Field with the texts of the supporting documents, for recipes whose prompt has no documents."""

GIVEN_FIELDS = ("search_keys", "rubrics", "rubric")
"""Fields that no public data set has: only rows of this package can contain them."""


def given_fields(recipe: RecipeDefinition) -> list[str]:
    """Return the fields of `GIVEN_FIELDS` that a recipe reads.

    >>> from rag_rewards.recipes import definition_of
    >>> given_fields(definition_of("carr")), given_fields(definition_of("stepsearch"))
    (['rubrics'], ['search_keys'])
    """
    names = {field.partition(" ")[0] for field in recipe.fields}
    return [name for name in GIVEN_FIELDS if name in names]


def suitability_problem(gold: Gold, recipe: RecipeDefinition) -> Problem | None:
    """Return why a recipe cannot score the responses, or gives all of them the same score."""
    reads = recipe.fields
    if gold.answer_kind == "claims" and "answers" in reads and "nli" not in reads:
        return Problem("the answers are claims, which only a recipe with entailment can check")
    if "supporting" in reads:
        if gold.supporting is None:
            return gold.unsupported or Problem("the supporting documents are unknown")
        if not gold.supporting or gold.answerable is False:
            return Problem("no document supports an answer")
    if GOLD_DOCUMENTS in reads and not gold.supporting:
        return gold.unsupported or Problem("the supporting documents are unknown")
    if "answerable" in reads:
        if gold.answerable is None:
            detail = gold.unsupported.reason if gold.unsupported else "the row has no `answerable`"
            return Problem("unknown whether the documents contain an answer", detail)
        if recipe.data.answerable_only and not gold.answerable:
            return Problem("unanswerable; the recipe uses answerable questions only")
    return None


def answer_problem(gold: Gold) -> Problem | None:
    """Return the problem of a question whose documents do not contain the answer.

    Source: LEAR, section 2.2, which excludes such questions from the test set.
    """
    if documents_contain_answers(gold):
        return None
    return Problem("the documents do not contain the gold answer")
