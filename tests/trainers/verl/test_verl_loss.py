"""KL penalty and loss aggregation of verl, with the settings that `rag-rewards init` writes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_module
from verl.trainer.ppo.core_algos import agg_loss, kl_penalty

sys.path.append(str(Path(__file__).resolve().parents[1]))
from start_scripts import written_settings

DIFFERENCES = (0.5, -3.0, 10.0)
"""Values of log π_ref − log π."""
PENALTIES = {
    "arena": (0.125, 4.5, 50.0),  # k2 = ½ d²
    "truthrl": (0.148721, 2.049787, 10.0),  # k3 = exp(d) − d − 1, which verl limits to 10
}
LOSSES = torch.tensor([[1.0, 3.0, 100.0, 100.0], [4.0, 4.0, 4.0, 8.0]])
MASK = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
MEANS = {"truthrl": 3.5, "ctrl-rag": 3.5, "lear": 3.5, "arena": 4.0}
"""Mean of the means of the responses (2 and 5), or mean of the six tokens."""


def actor_of(recipe: str, folder: Path) -> Any:
    """Return the settings of the actor, as verl reads the script."""
    words = written_settings("verl", recipe, folder / recipe)
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=words).actor_rollout_ref.actor


@pytest.mark.parametrize("recipe", PENALTIES)
def test_the_kl_penalty(tmp_path: Path, recipe: str) -> None:
    actor = actor_of(recipe, tmp_path)
    assert actor.use_kl_loss is True
    logps = torch.tensor([-12.0] * 3, requires_grad=True)
    penalties = kl_penalty(logps, logps.detach() + torch.tensor(DIFFERENCES), actor.kl_loss_type)
    assert penalties.tolist() == pytest.approx(PENALTIES[recipe], rel=1e-4)
    penalties.sum().backward()
    if recipe == "arena":
        assert logps.grad.tolist() == pytest.approx([-d for d in DIFFERENCES])


def test_ctrl_rag_has_no_kl_penalty(tmp_path: Path) -> None:
    actor = actor_of("ctrl-rag", tmp_path)
    assert actor.use_kl_loss is False
    assert actor.entropy_coeff == 0.0


@pytest.mark.parametrize("recipe", MEANS)
def test_the_loss_aggregation(tmp_path: Path, recipe: str) -> None:
    mode = actor_of(recipe, tmp_path).loss_agg_mode
    assert agg_loss(LOSSES, MASK, mode).item() == pytest.approx(MEANS[recipe])
