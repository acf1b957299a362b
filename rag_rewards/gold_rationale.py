"""Responses that are assembled from gold data and a rationale, which a model wrote from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rag_rewards.output_form import OutputForm
from rag_rewards.rollout import Rollout


@dataclass(frozen=True)
class GoldRationale:
    """How a recipe assembles a response from gold data and a rationale.

    prompt    name of the prompt that requests a rationale; it contains the gold data
    section   section that contains the rationale
    required  components that must be 1, so that a bad rationale trains no policy
    gold      function that returns the other sections of a row, except for the answer
    """

    prompt: str
    section: str
    required: tuple[str, ...]
    gold: Callable[[Rollout], Mapping[str, str]]

    def assemble(self, form: OutputForm, row: Rollout, rationale: str) -> str:
        """Return the response in the output form of the recipe.

        Raises DataError for a row without the gold data.
        """
        parts = {**self.gold(row), self.section: rationale.strip()}
        return form.write(row.gold_text, **parts)
