"""Reward functions for reinforcement learning of retrieval-augmented generators.

>>> import rag_rewards as rr
>>> row = {"response": "<think>…</think><answer>Paris</answer>", "answers": "Paris"}
>>> rr.recipe("naive-grpo")([rr.decode_row(row)])[0].value
2.0
"""

from typing import TYPE_CHECKING

from rag_rewards.errors import (
    BackendError,
    DataError,
    EvidenceError,
    GroupError,
    MissingExtraError,
    RagRewardsError,
    RolloutError,
    RowError,
    ScoringError,
    SettingError,
    SignatureError,
    UnknownRecipeError,
    UsageError,
)
from rag_rewards.lazy import lazy_names
from rag_rewards.version import __version__

if TYPE_CHECKING:
    from rag_rewards.compose import Clip, Gate, Mean, Product, Sum, Threshold, weighted
    from rag_rewards.definition import Recipe
    from rag_rewards.evidence.gather import Gatherer
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.group_normalization import GroupAdvantage, GroupMinMax, GroupZScore
    from rag_rewards.own_recipe import custom
    from rag_rewards.prompt_template import PromptTemplate
    from rag_rewards.prompts import Prompt
    from rag_rewards.recipes import RECIPES, recipe
    from rag_rewards.report.explain_data import explain, explain_group
    from rag_rewards.reward import Batch, Reward, as_reward
    from rag_rewards.rollout import Document, Evidence, Rollout, Score
    from rag_rewards.rows import decode_row
    from rag_rewards.scorer import Scorer
    from rag_rewards.signature import Signature
    from rag_rewards.tables.score import score
    from rag_rewards.text.response import Response
    from rag_rewards.training.curriculum import Curriculum, Stage

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "rag_rewards.compose": "Clip Gate Mean Product Sum Threshold weighted",
        "rag_rewards.own_recipe": "custom",
        "rag_rewards.definition": "Recipe",
        "rag_rewards.group_normalization": "GroupAdvantage GroupMinMax GroupZScore",
        "rag_rewards.prompt_template": "PromptTemplate",
        "rag_rewards.prompts": "Prompt",
        "rag_rewards.evidence.gather": "Gatherer",
        "rag_rewards.evidence.protocols": "Models",
        "rag_rewards.recipes": "RECIPES recipe",
        "rag_rewards.report.explain_data": "explain explain_group",
        "rag_rewards.reward": "Batch Reward as_reward",
        "rag_rewards.rollout": "Document Evidence Rollout Score",
        "rag_rewards.rows": "decode_row",
        "rag_rewards.scorer": "Scorer",
        "rag_rewards.signature": "Signature",
        "rag_rewards.tables.score": "score",
        "rag_rewards.text.response": "Response",
        "rag_rewards.training.curriculum": "Curriculum Stage",
    },
)

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
    "Gatherer",
    "GroupAdvantage",
    "GroupError",
    "GroupMinMax",
    "GroupZScore",
    "Mean",
    "MissingExtraError",
    "Models",
    "Product",
    "Prompt",
    "PromptTemplate",
    "RagRewardsError",
    "Recipe",
    "Response",
    "Reward",
    "Rollout",
    "RolloutError",
    "RowError",
    "Score",
    "Scorer",
    "ScoringError",
    "SettingError",
    "Signature",
    "SignatureError",
    "Stage",
    "Sum",
    "Threshold",
    "UnknownRecipeError",
    "UsageError",
    "__version__",
    "as_reward",
    "custom",
    "decode_row",
    "explain",
    "explain_group",
    "recipe",
    "score",
    "weighted",
]
