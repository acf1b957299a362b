"""KL penalty and loss aggregation of OpenRLHF, with the settings that `rag-rewards init` writes."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from missing_modules import stand_ins

sys.path.append(str(Path(__file__).resolve().parents[1]))
from start_scripts import written_settings

DIFFERENCES = (0.5, -3.0, 10.0)
"""Values of log π_ref − log π."""
PENALTIES = {
    "arena": (0.125, 4.5, 10.0),  # k2 = ½ d², whose value OpenRLHF limits to 10
    "truthrl": (0.148721, 2.049787, 10.0),  # k3 = exp(d) − d − 1, limited to 10
}
LOSSES = torch.tensor([[1.0, 3.0, 100.0, 100.0], [4.0, 4.0, 4.0, 8.0]])
MASK = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
MEANS = {"truthrl": 3.5, "ctrl-rag": 3.5, "lear": 3.5, "arena": 4.0}
"""Mean of the means of the responses (2 and 5), or mean of the six tokens."""


def arguments_of(recipe: str, folder: Path) -> dict[str, Any]:
    """Return the settings by flag, as the parser of OpenRLHF reads the script."""
    file = Path(find_spec("openrlhf").submodule_search_locations[0]) / "cli" / "train_ppo_ray.py"
    source = file.read_text("utf-8")
    start = source.index("    parser = argparse.ArgumentParser()")
    code = dedent(source[start : source.index("    args = parser.parse_args()")])
    names: dict[str, Any] = {"argparse": argparse}
    with stand_ins():
        exec(source[: source.index("\ndef ")], names)  # noqa: S102 - the imports of OpenRLHF
        exec(code, names)  # noqa: S102 - its own parser
    words = written_settings("openrlhf", recipe, folder / recipe)
    return vars(names["parser"].parse_args(words))


def penalties_of(arguments: dict[str, Any], logps: torch.Tensor) -> torch.Tensor:
    """Return the penalties as the actor computes them in the only pass over a batch."""
    with stand_ins():
        from openrlhf.models.utils import compute_approx_kl
    return compute_approx_kl(
        logps,
        logps.detach() + torch.tensor(DIFFERENCES),
        log_probs_old=logps.detach(),
        kl_estimator=arguments["algo.kl.estimator"],
        unbiased_gradient=arguments["algo.kl.unbiased_gradient"],
    )


@pytest.mark.parametrize("recipe", PENALTIES)
def test_the_kl_penalty(tmp_path: Path, recipe: str) -> None:
    arguments = arguments_of(recipe, tmp_path)
    assert arguments["algo.kl.use_loss"] is True
    assert arguments["train.max_epochs"] == 1
    logps = torch.tensor([-12.0] * 3, requires_grad=True)
    penalties = penalties_of(arguments, logps)
    assert penalties.tolist() == pytest.approx(PENALTIES[recipe], rel=1e-4)
    penalties.sum().backward()
    if recipe == "arena":  # the gradient of k2, also where the value is limited
        assert logps.grad.tolist() == pytest.approx([-d for d in DIFFERENCES])


def test_the_gradient_of_k2_is_0_at_the_limit_without_the_flag(tmp_path: Path) -> None:
    arguments = arguments_of("arena", tmp_path) | {"algo.kl.unbiased_gradient": False}
    logps = torch.tensor([-12.0] * 3, requires_grad=True)
    penalties_of(arguments, logps).sum().backward()
    assert logps.grad.tolist() == pytest.approx([-0.5, 3.0, 0.0])


def test_ctrl_rag_has_no_kl_penalty(tmp_path: Path) -> None:
    arguments = arguments_of("ctrl-rag", tmp_path)
    assert arguments["algo.kl.init_coef"] == 0
    assert arguments["actor.entropy_coef"] == 0.0


@pytest.mark.parametrize("recipe", MEANS)
def test_the_loss_aggregation(tmp_path: Path, recipe: str) -> None:
    with stand_ins():
        from openrlhf.models.loss import aggregate_loss
    is_token_level = arguments_of(recipe, tmp_path)["actor.loss_agg_mode"] == "token-mean"
    assert aggregate_loss(LOSSES, MASK, is_token_level).item() == pytest.approx(MEANS[recipe])
