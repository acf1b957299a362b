"""The base of adapters that score complete groups and return advantages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rag_rewards.loading import RecipeSource
from rag_rewards.scorer import Scorer
from rag_rewards.training.credit import Credit
from rag_rewards_adapters.credit_choice import credit_of
from rag_rewards_adapters.stage_checks import refuse_curriculum
from rag_rewards_adapters.turn_rows import SearchCheck
from rag_rewards_adapters.unscored_handler import UnscoredHandler


class GroupRecipe:
    """A recipe with a credit method. The docstrings of its subclasses describe the arguments.

    Raises UsageError for a curriculum, because these trainers pass no training step.
    """

    trainer = ""
    """Name of the trainer in messages."""

    def __init__(
        self,
        recipe: RecipeSource | None = None,
        *,
        credit: Credit | str | None = None,
        credit_options: Mapping[str, Any] | None = None,
        std_floor: float | None = None,
        patience: int = 8,
        **options: Any,
    ) -> None:
        self.scorer = Scorer.load(options if recipe is None else {"recipe": recipe, **options})
        refuse_curriculum(self.scorer.reward, self.trainer, "start a run for each stage")
        self.credit = credit_of(credit, credit_options, self.scorer, std_floor)
        self.std_floor = std_floor
        self._unscored = UnscoredHandler(patience)
        self._searches = SearchCheck()
