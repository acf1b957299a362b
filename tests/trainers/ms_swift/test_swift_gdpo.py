"""GDPO in ms-swift: one reward per component, and groups without a difference."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rag_rewards_adapters.ms_swift import register
from swift.rewards import orms
from swift.rl_core.advantage import compute_advantages
from swift.rl_core.data import GRPOSample
from swift.rl_core.grpo_algorithm import compute_rewards_per_func, compute_std_for_dynamic_sampling
from test_swift_rewards import _registry, config  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from component_groups import BATCHES, ComponentBatch, texts_of, written

from rag_rewards.errors import UsageError
from rag_rewards.training.credit import whiten

FLAT = [batch for batch in BATCHES if batch.name.startswith("a flat")]


def samples_of(batch: ComponentBatch) -> list[GRPOSample]:
    prompts = [f"p{g}" for g, group in enumerate(batch.groups) for _ in group]
    return [
        GRPOSample(
            messages=[{"role": "user", "content": "?"}, {"role": "assistant", "content": text}],
            prompt_id=prompt,
            request_id=f"r{i}",
        )
        for i, (prompt, text) in enumerate(zip(prompts, texts_of(batch), strict=True))
    ]


def rewards_of(batch: ComponentBatch, **options: Any) -> tuple[Any, torch.Tensor]:
    """Return the recipe, and the rewards that ms-swift computes for a batch."""
    recipe = written()
    register("written", recipe=recipe, components=[*batch.weights])
    args = config(scale_rewards="gdpo", num_generations=4, per_device_train_batch_size=8)
    rewards = [orms[f"written/{name}"](args=args) for name in batch.weights]
    plugins = [None] * len(rewards)
    cpu = torch.device("cpu")
    return recipe, compute_rewards_per_func(samples_of(batch), rewards, plugins, device=cpu)


def advantages_of(batch: ComponentBatch, rewards: torch.Tensor) -> list[float]:
    weights = torch.tensor([*batch.weights.values()])
    values, _ = compute_advantages(rewards, weights, 4, scale_rewards="gdpo")
    result: list[float] = values.tolist()
    return result


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch.name)
def test_advantages_equal_those_of_gdpo(batch: ComponentBatch) -> None:
    recipe, rewards = rewards_of(batch)
    assert recipe.total.passes == 1
    sums = [member for group in batch.normalized("swift") for member in group]
    golden = [member[0] for member in whiten(sums, preset="swift")]
    assert advantages_of(batch, rewards) == pytest.approx(golden, abs=2e-5)


def test_rounding_errors_of_flat_groups_are_no_advantages() -> None:
    """Without our rounding, equal rewards of 0.7 get an advantage."""
    raw = torch.tensor([[0.7]] * 7 + [[0.0], [1.0]] * 3 + [[0.5]])
    values, _ = compute_advantages(raw, torch.ones(1), 7, scale_rewards="gdpo")
    assert abs(values[0].item()) > 0.1
    flat = next(batch for batch in FLAT if batch.name == "a flat group")
    _, rewards = rewards_of(flat)
    assert len(set(advantages_of(flat, rewards)[4:])) == 1


@pytest.mark.parametrize("size", [3, 7, 8, 11])
@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3, -0.618])
def test_dynamic_sampling_sees_flat_groups(value: float, size: int) -> None:
    member = {"outcome": value, "format": value}
    batch = ComponentBatch("flat", ((member,) * size,))
    register("written", recipe=written())
    reward = orms["written"](args=config(num_generations=size))
    cpu = torch.device("cpu")
    rewards = compute_rewards_per_func(samples_of(batch), [reward], [None], device=cpu)
    deviations = compute_std_for_dynamic_sampling(rewards, torch.ones(1), size)
    assert deviations.tolist() == [0.0] * size


def test_dynamic_sampling_reads_the_sum_of_the_components() -> None:
    """A group whose sums are equal is replaced, although its components differ."""
    batch = next(batch for batch in BATCHES if batch.name == "equal sums")
    _, rewards = rewards_of(batch)
    deviations = compute_std_for_dynamic_sampling(rewards, torch.ones(2), 4).tolist()
    assert all(deviations[:4])
    assert not any(deviations[4:])


def test_components_are_pickled_with_their_shared_pass() -> None:
    register("search-r1", components=["outcome", "format"])
    rewards = [orms[f"search-r1/{name}"](args=None) for name in ("outcome", "format")]
    copies = pickle.loads(pickle.dumps(rewards))  # noqa: S301
    assert copies[0].recipe is copies[1].recipe
    assert [type(copy).__name__ for copy in copies] == ["search-r1/outcome", "search-r1/format"]


def test_an_unknown_component_is_named() -> None:
    with pytest.raises(UsageError, match="no component 'outcom'; did you mean 'outcome'"):
        register("search-r1", components=["outcom"])


def test_components_and_std_floor_are_refused() -> None:
    with pytest.raises(UsageError, match="std_floor and components would normalize twice"):
        register("search-r1", components=["outcome"], std_floor=0.1)


def test_several_samples_of_a_request_are_refused() -> None:
    register("written", recipe=written(), components=["outcome"])
    reward = orms["written/outcome"](args=config(scale_rewards="gdpo"))
    texts = ['{"outcome": 1.0, "format": 0.0}'] * 2
    with pytest.raises(UsageError, match="one sample per request"):
        reward(texts, prompt_id=["p", "p"], request_id=["r", "r"])
