"""verl's reward loop under real Ray, and the advantages that verl computes of its rewards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ["RAY_AUTH_MODE"] = "disabled"

import numpy as np
import pytest
import ray
import torch
from ray_nodes import start_ray
from reward_batches import (
    DOCUMENTS,
    GOLD,
    KWARGS,
    QUESTION,
    ResponseRow,
    batch_of,
    config_with_manager,
)
from verl import DataProto
from verl.experimental.reward_loop.reward_loop import RewardLoopManager
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.reward import extract_reward

import rag_rewards as rr
from rag_rewards.training.advantages import group_advantages, mean_std

RIGHT = "<relevance>[1]</relevance><analysis>Document 1.</analysis><answer>Seine</answer>"
TEXTS = (RIGHT, RIGHT.replace("[1]", "[2]"), "<answer>Seine</answer>", "x")


@pytest.fixture(scope="module", autouse=True)
def running() -> Iterator[None]:
    start_ray(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def loop() -> Iterator[Any]:
    """Return the reward loop of a configuration. The next test with the same one reuses it."""
    alive: list[tuple[str, RewardLoopManager]] = []

    def end() -> None:
        for _, manager in alive:
            for worker in manager.reward_loop_workers:
                ray.kill(worker)
        alive.clear()

    def of(config: Any) -> RewardLoopManager:
        key = repr(config)
        if not alive or alive[0][0] != key:
            end()
            alive.append((key, RewardLoopManager(config)))
        return alive[0][1]

    yield of
    end()


@pytest.fixture(scope="module")
def arena(folder: Path) -> Any:
    return config_with_manager(
        folder,
        f"{KWARGS}.recipe=arena",
        f"{KWARGS}.settings.bonus.value=5",
        "algorithm.norm_adv_by_std_in_grpo=False",
        "+algorithm.std_floor=3",
    )


def alone(recipe: Any, texts: Iterable[str]) -> list[rr.Score]:
    """Return the scores of a recipe without a trainer."""
    fields = {"question": QUESTION, "documents": DOCUMENTS, **GOLD}
    return recipe([rr.decode_row({**fields, "response": text}) for text in texts])


def groups(*texts: tuple[str, ...]) -> list[ResponseRow]:
    """Return rollouts of prompts. The number of the group is the uid and the index of the row."""
    info = {"question": QUESTION, "documents": np.array(DOCUMENTS, dtype=object)}
    truth = {key: np.array(v) if isinstance(v, list) else v for key, v in GOLD.items()}
    return [
        ResponseRow(text, truth, {**info, "index": i}, {"uid": f"prompt-{i}"})
        for i, group in enumerate(texts)
        for text in group
    ]


def advantages(batch: DataProto, config: Any, estimator: str) -> torch.Tensor:
    """Compute advantages as verl's trainer does, with the reward of a row on its last token."""
    batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
    result = compute_advantage(
        batch,
        adv_estimator=estimator,
        norm_adv_by_std_in_grpo=config.algorithm.norm_adv_by_std_in_grpo,
        config=config.algorithm,
    )
    return result.batch["advantages"]


def test_rewards_reach_verls_advantages_unchanged(tokenizer: Any, loop: Any, arena: Any) -> None:
    grouped = [TEXTS, (RIGHT, RIGHT, RIGHT), ("x", "<answer>Seine</answer>"), (RIGHT,)]
    rows = groups(*grouped)
    batch = batch_of(tokenizer, rows)
    result = loop(arena).compute_rm_score(batch)  # 10 rows, two workers
    tensor, extra = extract_reward(result)

    recipe = rr.recipe("arena", {"bonus.value": 5})
    expected = alone(recipe, [row.text for row in rows])
    rewards = [score.value for score in expected]
    assert tensor.sum(-1).tolist() == rewards
    lengths = batch.batch["attention_mask"][:, batch.batch["prompts"].shape[1] :].sum(-1)
    last = torch.arange(tensor.shape[1]) == lengths[:, None] - 1
    assert bool((tensor[~last] == 0).all())
    assert {name: values.tolist() for name, values in extra.items()} == {
        **{name: [s.components[name] for s in expected] for name in recipe.component_names},
        "acc": [s.correct for s in expected],
    }

    # The group of one prompt, as verl and as LEAR normalize it.
    batch = batch.union(result)
    by_group, at = [], 0
    for group in grouped:
        by_group.append(rewards[at : at + len(group)])
        at += len(group)
    first = torch.tensor([0] * len(rows))
    centred = advantages(batch, arena, "grpo")[torch.arange(len(rows)), first]
    expected_of = [r - mean_std(g)[0] if len(g) > 1 else r for g in by_group for r in g]
    assert centred.tolist() == pytest.approx(expected_of, abs=1e-6)

    floored = advantages(batch, arena, "rag_grpo_clip_std")
    expected_of = [a for group in by_group for a in group_advantages(group, std_floor=3)]
    mask = batch.batch["response_mask"]
    assert floored[:, 0].tolist() == pytest.approx(expected_of, abs=1e-6)
    assert torch.equal(floored, floored[:, :1] * mask)
    assert torch.equal(batch.batch["returns"], floored)


def test_validation_reads_acc_of_one_rollout_a_prompt(
    tokenizer: Any, loop: Any, arena: Any
) -> None:
    rows = groups((RIGHT,), ("<answer>Seine</answer>",), ("x",))
    tensor, extra = extract_reward(loop(arena).compute_rm_score(batch_of(tokenizer, rows)))
    infos = {"reward": tensor.sum(-1).tolist()}
    infos |= {name: values.tolist() for name, values in extra.items()}
    metrics = process_validation_metrics(["river"] * 3, ["1", "2", "3"], infos)["river"]
    assert metrics["acc"]["mean@1"] == pytest.approx(2 / 3)
    assert metrics["format"]["mean@1"] == pytest.approx(1 / 3)


def test_errors_in_ray_name_the_row_and_the_setting(tokenizer: Any, loop: Any, arena: Any) -> None:
    rows = groups((RIGHT,), (RIGHT,))
    rows[1].ground_truth = {"answers": ["Seine"]}
    with pytest.raises(rr.DataError, match="row 1: supporting: missing"):
        loop(arena).compute_rm_score(batch_of(tokenizer, rows))


def test_padding_rows_do_not_change_advantages(tokenizer: Any) -> None:
    rows = groups(TEXTS[:2])
    batch = batch_of(tokenizer, rows, pad=0)
    real = {name: batch.batch[name][0] for name in ("prompts", "responses", "attention_mask")}
    real["num_turns"] = 2
    sample, _ = construct_minimal_padding_template(real, {}, tokenizer.eos_token_id)
    width = batch.batch["responses"].shape[1]
    rewards, mask = torch.zeros(4, width), torch.ones(4, width)
    rewards[0, -1], rewards[1, -1] = 13.0, 2.0
    for i in (2, 3):  # as in a padded tensor: one masked token, no reward
        mask[i] = 0
        mask[i, : len(sample["response_mask"])] = sample["response_mask"]
        rewards[i, : len(sample["rm_scores"])] = sample["rm_scores"]
    prompts = np.array(["a", "a", "pad-x", "pad-x"], dtype=object)
    estimate = core_algos.get_adv_estimator_fn("rag_grpo_clip_std")
    values, _ = estimate(
        token_level_rewards=rewards, response_mask=mask, index=prompts, config=None
    )
    assert values[:2, 0].tolist() == group_advantages([13.0, 2.0])
    assert values[2:].abs().sum() == 0
