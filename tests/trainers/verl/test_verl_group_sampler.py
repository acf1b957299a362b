"""The replay buffers that log components, with a dict as TransferQueue."""

from __future__ import annotations

import math

import pytest
from rag_rewards_adapters.verl import sampler as verl_sampler
from rag_rewards_adapters.verl.credit import SIGNAL
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


NONE_FAILED = {"rag_rewards/not_scored_groups": 0.0}
BOTH = pytest.mark.parametrize("kind", [RagReplayBuffer, RagReplayBufferAsync])


@BOTH
def test_components_of_a_batch_are_metrics(queue, kind):
    queue.prompt("a", "finished", [{"clr": 1.0, "cost": math.nan}, {"clr": 0.0, "cost": math.nan}])
    queue.prompt("b", "finished", [{"clr": 2.0, "cost": 4.0}])
    batch, metrics = buffer(kind, print).sample(1, "train", 2)
    assert sorted(batch.keys) == ["a_0_0", "a_1_0", "b_0_0"]
    assert metrics == NONE_FAILED | {"rag_rewards/clr/mean": 1.0, "rag_rewards/cost/mean": 4.0}


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
def test_a_group_with_some_scored_rollouts_is_replaced(queue, kind):
    """verl's synchronous buffer would train on the scored rollouts and on padding."""

    def refill(count):
        assert count == 1
        queue.prompt("new", "finished", [{"clr": 1.0}] * 2)

    queue.prompt("a", "failure", [{"clr": 3.0}])
    queue.prompt("b", "finished", [{"clr": 1.0}] * 2)
    batch, metrics = buffer(kind, refill).sample(1, "train", 2)
    assert sorted(batch.keys) == ["b_0_0", "b_1_0", "new_0_0", "new_1_0"]
    assert metrics["rag_rewards/not_scored_groups"] == 1.0
    assert metrics["rag_rewards/clr/mean"] == 1.0


@BOTH
def test_consecutive_batches_with_failed_groups_raise(queue, kind):
    """The groups that need no model still complete each batch."""
    names = iter(range(100))

    def refill(count):
        for _ in range(count):
            queue.prompt(f"new-{next(names)}", "finished", [{}])

    def sample(*statuses):
        for status in statuses:
            queue.prompt(f"{next(names)}", status, [{}])
        return replay.sample(1, "train", 2)[1]["rag_rewards/not_scored_groups"]

    replay = buffer(kind, refill)
    assert [sample("failure", "finished"), sample("failure", "finished")] == [1.0, 1.0]
    assert sample("finished", "finished") == 0.0
    assert [sample("failure", "failure"), sample("failure", "finished")] == [2.0, 1.0]
    with pytest.raises(GroupError, match=r"failed in 3 consecutive batches \(1 in the last one\)"):
        sample("failure", "finished")


@BOTH
def test_few_failed_groups_of_a_large_batch_are_tolerated(queue, kind):
    replay = buffer(kind, lambda count: queue.prompt("new", "finished", [{}]), patience=1)
    for i in range(20):
        queue.prompt(str(i), "failure" if i == 7 else "finished", [{}])
    assert replay.sample(1, "train", 20)[1]["rag_rewards/not_scored_groups"] == 1.0


@BOTH
def test_validation_keeps_a_group_with_a_failed_rollout(queue, kind):
    queue.prompt("a", "failure", [{"clr": 3.0}])
    queue.kv_list = lambda: {"val": dict(queue.items)}
    assert buffer(kind, print).sample(1, "val", 1)[0].keys == ["a_0_0"]


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
    assert buffer(kind, print).sample(1, "train", 1)[1] == NONE_FAILED


def test_the_filter_replaces_groups_without_a_gradient(queue):
    refilled = []

    def refill(count):
        refilled.append(count)
        queue.prompt("new", "finished", [{SIGNAL: 2.0}, {SIGNAL: 0.0}])

    queue.prompt("flat", "finished", [{SIGNAL: 0.0}, {SIGNAL: 0.0}])
    sampler = buffer(RagReplayBuffer, refill, filter_groups_metric=SIGNAL)
    batch, metrics = sampler.sample(1, "train", 1)
    assert sorted(batch.keys) == ["new_0_0", "new_1_0"]
    assert refilled == [1]
    assert metrics["training/filter_groups/evicted_samples"] == 1
    assert metrics[f"rag_rewards/{SIGNAL}/mean"] == 1.0
