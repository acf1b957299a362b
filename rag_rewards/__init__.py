"""Reward functions for reinforcement learning of retrieval-augmented generators.

>>> import rag_rewards as rr
>>> row = {"response": "<think>…</think><answer>Paris</answer>", "answers": "Paris"}
>>> rr.recipe("naive-grpo")([rr.decode_row(row)])[0].value
2.0
"""

from rag_rewards.compose import (
    Batch,
    Clip,
    Gate,
    GroupAdvantage,
    GroupMinMax,
    GroupZScore,
    Mean,
    Product,
    Reward,
    Sum,
    Threshold,
    as_reward,
    weighted,
)
from rag_rewards.errors import (
    BackendError,
    DataError,
    EvidenceError,
    GroupError,
    MissingExtraError,
    RagRewardsError,
    RolloutError,
    RowError,
    SettingError,
    UnknownRecipeError,
    UsageError,
)
from rag_rewards.recipe import Recipe, custom
from rag_rewards.recipes import RECIPES, recipe
from rag_rewards.rollout import Document, Evidence, Rollout, Score, decode_row
from rag_rewards.text.response import Response
from rag_rewards.training.curriculum import Curriculum, Stage
from rag_rewards.version import __version__

__all__ = [
    "RECIPES",
    "BackendError",
    "Batch",
    "Clip",
    "Curriculum",
    "DataError",
    "Document",
    "Evidence",
    "EvidenceError",
    "Gate",
    "GroupAdvantage",
    "GroupError",
    "GroupMinMax",
    "GroupZScore",
    "Mean",
    "MissingExtraError",
    "Product",
    "RagRewardsError",
    "Recipe",
    "Response",
    "Reward",
    "Rollout",
    "RolloutError",
    "RowError",
    "Score",
    "SettingError",
    "Stage",
    "Sum",
    "Threshold",
    "UnknownRecipeError",
    "UsageError",
    "__version__",
    "as_reward",
    "custom",
    "decode_row",
    "recipe",
    "weighted",
]
