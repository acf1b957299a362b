"""Whether a recipe can score what is known about a question."""

from __future__ import annotations

from rag_rewards.blueprints import Blueprint
from rag_rewards.datasets.gold import Gold, Problem

STAGE_ONE = "ground-grpo-stage1"


def unfit(gold: Gold, recipe: Blueprint) -> Problem | None:
    """Why a recipe cannot score this question's responses, or would score them all alike."""
    reads = recipe.fields
    if gold.answer_kind == "claims" and "answers" in reads and "nli" not in reads:
        return Problem("claims, which this recipe cannot check: only entailment can")
    if "supporting" in reads:
        if gold.supporting is None:
            return gold.unsupported or Problem("no supporting documents known")
        if not gold.supporting or gold.answerable is False:
            return Problem("no document supports an answer")
    if "answerable" in reads:
        if gold.answerable is None:
            why = gold.unsupported.reason if gold.unsupported else "no `answerable` in the row"
            return Problem("not known whether the documents answer it", why)
        if recipe.name == STAGE_ONE and not gold.answerable:
            return Problem("unanswerable, and stage 1 takes answerable questions alone")
    return None
