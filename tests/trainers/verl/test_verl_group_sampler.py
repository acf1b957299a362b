"""The replay buffers that log components, with a dict as TransferQueue."""

from __future__ import annotations

import math

import pytest
from rag_rewards_adapters import verl_sampler
from rag_rewards_adapters.verl_sampler import RagReplayBuffer, RagReplayBufferAsync
from verl.trainer.ppo.v1 import replay_buffer

from rag_rewards.errors import GroupError


class Queue:
    """Prompts and their trajectories, by key."""

    def __init__(self):
        self.items, self.fields = {}, {}

    def prompt(self, uid, status, infos=()):
        self.items[uid] = {"is_prompt": True, "status": status, "global_steps": 1}
        for i, info in enumerate(infos):
            self.items[f"{uid}_{i}_0"] = {"status": "success"}
            self.fields[f"{uid}_{i}_0"] = {"reward_extra_info": info}

    def kv_list(self):
        return {"train": dict(self.items)}

    def kv_clear(self, keys, partition_id):
        for key in keys:
            self.items.pop(key, None)

    def kv_batch_get(self, keys, partition_id, select_fields):
        return {name: [self.fields[key] for key in keys] for name in select_fields}


@pytest.fixture
def queue(monkeypatch):
    double = Queue()
    monkeypatch.setattr(replay_buffer, "tq", double)
    monkeypatch.setattr(verl_sampler, "transfer_queue", double)
    return double


def buffer(kind, refill, **kwargs):
    return kind(
        trainer_mode="sync",
        trainer_config={},
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs={"poll_interval": 0.0, **kwargs},
        refill_fn=refill,
    )


BOTH = pytest.mark.parametrize("kind", [RagReplayBuffer, RagReplayBufferAsync])


@BOTH
def test_components_of_a_batch_are_metrics(queue, kind):
    queue.prompt("a", "finished", [{"clr": 1.0, "cost": math.nan}, {"clr": 0.0, "cost": math.nan}])
    queue.prompt("b", "finished", [{"clr": 2.0, "cost": 4.0}])
    batch, metrics = buffer(kind, print).sample(1, "train", 2)
    assert sorted(batch.keys) == ["a_0_0", "a_1_0", "b_0_0"]
    assert metrics == {"rag_rewards/clr/mean": 1.0, "rag_rewards/cost/mean": 4.0}


@BOTH
def test_failed_groups_are_replaced_and_counted(queue, kind):
    refilled = []

    def refill(count):
        refilled.append(count)
        queue.prompt(f"new-{len(refilled)}", "finished", [{"clr": 1.0}])

    queue.prompt("a", "failure")
    batch, metrics = buffer(kind, refill).sample(1, "train", 1)
    assert batch.keys == ["new-1_0_0"]
    assert refilled == [1]
    assert metrics["training/rollout_failure/evicted_samples"] == 1


@BOTH
def test_consecutive_failed_groups_raise(queue, kind):
    refilled_prompts = []

    def refill(count):
        refilled_prompts.extend(range(count))
        queue.prompt(f"new-{len(refilled_prompts)}", "failure")

    queue.prompt("a", "failure")
    with pytest.raises(GroupError, match="6 groups failed before a batch was complete"):
        buffer(kind, refill).sample(1, "train", 2)
    queue.prompt("b", "failure")
    with pytest.raises(GroupError, match="2 groups failed"):
        buffer(kind, refill, patience=1).sample(1, "train", 2)


@BOTH
def test_rollouts_without_components(queue, kind):
    queue.prompt("a", "finished", [{}])
    assert buffer(kind, print).sample(1, "train", 1)[1] == {}
