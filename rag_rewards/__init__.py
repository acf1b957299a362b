"""Reward functions for reinforcement learning of retrieval-augmented generators.

>>> import rag_rewards as rr
>>> row = {"response": "<think>…</think><answer>Paris</answer>", "answers": "Paris"}
>>> rr.recipe("naive-grpo")([rr.decode_row(row)])[0].value
2.0
"""

from typing import TYPE_CHECKING, Any

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
from rag_rewards.version import __version__

if TYPE_CHECKING:
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
    from rag_rewards.definition import Recipe, custom
    from rag_rewards.evidence.gather import Gatherer
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.prompts import Prompt
    from rag_rewards.recipes import RECIPES, recipe
    from rag_rewards.rollout import Document, Evidence, Rollout, Score
    from rag_rewards.rows import decode_row
    from rag_rewards.scorer import Scorer
    from rag_rewards.signature import Signature
    from rag_rewards.text.response import Response
    from rag_rewards.training.curriculum import Curriculum, Stage

# Parts are imported when they are first asked for: a process that wants one of them, as every
# worker of a trainer does, does not wait for the others.
_LAZY = {
    "rag_rewards.compose": "Batch Clip Gate GroupAdvantage GroupMinMax GroupZScore Mean Product "
    "Reward Sum Threshold as_reward weighted",
    "rag_rewards.definition": "Recipe custom",
    "rag_rewards.prompts": "Prompt",
    "rag_rewards.evidence.gather": "Gatherer",
    "rag_rewards.evidence.protocols": "Models",
    "rag_rewards.recipes": "RECIPES recipe",
    "rag_rewards.rollout": "Document Evidence Rollout Score",
    "rag_rewards.rows": "decode_row",
    "rag_rewards.scorer": "Scorer",
    "rag_rewards.signature": "Signature",
    "rag_rewards.text.response": "Response",
    "rag_rewards.training.curriculum": "Curriculum Stage",
}
_HOME = {name: module for module, names in _LAZY.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import the part of the package that a public name lives in."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
    "recipe",
    "weighted",
]
