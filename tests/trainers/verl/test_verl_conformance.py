"""Golden groups in verl's own advantages: compute_advantage of its trainer."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import verl.trainer.ppo.core_algos as core_algos
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.core_algos import AdvantageEstimator
from verl.trainer.ppo.ray_trainer import compute_advantage

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))
from build_matrix import STD_FLOOR, cell
from golden import GROUPS, RECIPES, Group, advantages, bare, centred, scored
from rag_rewards_adapters.verl import compute_score

import rag_rewards as rr
from rag_rewards.errors import RolloutError, UsageError

EPSILON = 1e-6  # as in verl's grpo
TOLERANCE = {"abs": 2e-5, "rel": 2e-5}
"""The trainer computes rewards and advantages in float32."""
ALL = pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)


def run(
    rewards: list[float], uids: list[str], masks: list[list[int]], estimator: Any, **options: Any
) -> list[list[float]]:
    """Return the advantages per token. The reward is at the last token of the mask, as in verl."""
    mask = torch.tensor(masks)
    levels = torch.zeros(mask.shape, dtype=torch.float32)
    for row, reward in enumerate(rewards):
        levels[row, max(int(mask[row].sum()) - 1, 0)] = reward
    data = DataProto(
        batch=TensorDict(
            {"token_level_rewards": levels, "response_mask": mask}, batch_size=[len(rewards)]
        ),
        non_tensor_batch={"uid": np.array(uids, dtype=object)},
    )
    return compute_advantage(data, adv_estimator=estimator, **options).batch["advantages"].tolist()


def of(group: Group, estimator: Any, **options: Any) -> list[float]:
    """Return the advantages of a group's scored members, beside another group and padding rows.

    verl leaves an unscored rollout out of the batch: it failed. Padding rows share a prompt of
    their own, have no token that counts, and a reward of 0.
    """
    members = [r for r in scored(group) if r is not None]
    rewards = [*members, 5.0, 7.0, *[0.0] * group.padding]
    uids = [*["group"] * len(members), "other", "other", *["padding"] * group.padding]
    masks = [[1, 1, 0]] * (len(members) + 2) + [[0, 0, 0]] * group.padding
    tokens = run(rewards, uids, masks, estimator, **options)
    for row, counted in zip(tokens, masks, strict=True):
        assert row == [row[0] * at for at in counted]
    return [row[0] for row in tokens[: len(members)]]


def scored_values(group: Group, values: list[float]) -> list[float]:
    return [v for v, r in zip(values, group.rewards, strict=True) if r is not None]


@ALL
def test_grpo_gives_the_golden_advantages(group: Group) -> None:
    values = of(group, AdvantageEstimator.GRPO)
    if len(group.rows) == 1:  # verl assumes mean 0 and std 1 for a prompt with one rollout
        assert values == pytest.approx([r for r in group.rewards if r is not None], **TOLERANCE)
    else:
        golden = scored_values(group, advantages(group, epsilon=EPSILON))
        assert values == pytest.approx(golden, **TOLERANCE)


@ALL
def test_grpo_without_scaling_subtracts_the_mean(group: Group) -> None:
    values = of(group, AdvantageEstimator.GRPO, norm_adv_by_std_in_grpo=False)
    if len(group.rows) == 1:
        assert values == pytest.approx([r for r in group.rewards if r is not None], **TOLERANCE)
    else:
        assert values == pytest.approx(scored_values(group, centred(group)), **TOLERANCE)


@ALL
@pytest.mark.parametrize("floor", [None, 0.5])
def test_the_estimator_returns_the_advantages_of_lear(group: Group, floor: float | None) -> None:
    assert "rag_grpo_clip_std" in core_algos.ADV_ESTIMATOR_REGISTRY
    config: Any = SimpleNamespace(get={"std_floor": floor or 0.1}.get)
    golden = scored_values(group, advantages(group, std_floor=floor or 0.1))
    values = of(group, "rag_grpo_clip_std", config=config)
    assert values == pytest.approx(golden, **TOLERANCE)


def test_the_floor_limits_advantages_of_almost_equal_rewards() -> None:
    rewards, uids, masks = [0.5, 0.502], ["q", "q"], [[1]] * 2
    usual = run(rewards, uids, masks, AdvantageEstimator.GRPO)
    ours = run(rewards, uids, masks, "rag_grpo_clip_std")
    assert usual[1][0] == pytest.approx(0.7071, abs=1e-3)
    assert ours[1][0] == pytest.approx(0.01, abs=1e-5)


# --- the matrix --------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_column_of_this_trainer(recipe: str) -> None:
    entry = cell(recipe, "verl")
    rows = bare(recipe)

    def score(row: dict[str, Any]) -> float:
        response, question = row.pop("response"), row.pop("question")
        extra = {"question": question}
        return compute_score("qa", response, row, extra, recipe=recipe)["score"]

    if rr.recipe(recipe).scope == "group":  # only the agent loop scores it
        with pytest.raises(UsageError, match="default_agent_loop=rag_group"):
            score(rows[0])
    elif entry.state == "works":
        golden = next(group for group in GROUPS if group.id == f"{recipe}: whole group")
        assert list(map(score, rows)) == pytest.approx(golden.rewards)
    else:
        evidence = (
            "nli|verdicts|logprobs|masked|judge|requires a model of the kind|generated_answers"
        )
        with pytest.raises((RolloutError, UsageError), match=evidence):
            list(map(score, rows))


def test_the_advantage_of_lear_in_this_trainer() -> None:
    name = STD_FLOOR["verl"].text.strip("`").partition("=")[2]
    assert name in core_algos.ADV_ESTIMATOR_REGISTRY
