"""The check that a trainer passes the training step, by which a curriculum selects its recipe."""

from __future__ import annotations

from rag_rewards.errors import UsageError
from rag_rewards.recipe_object import Recipe
from rag_rewards.training.curriculum import Curriculum


def refuse_curriculum(reward: Recipe | Curriculum, trainer: str, fix: str) -> None:
    """Raise UsageError for a curriculum in a trainer that does not pass the training step."""
    if isinstance(reward, Curriculum):
        raise UsageError(f"{trainer} does not pass the training step to a reward: {fix}")
