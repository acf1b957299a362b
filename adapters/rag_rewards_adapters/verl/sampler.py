"""Replay buffers of verl's V1 trainer that log components and train only on whole groups.

    trainer.v1.sampler.custom_sampler.path=pkg://rag_rewards_adapters.verl_sampler
    trainer.v1.sampler.custom_sampler.name=RagReplayBuffer
    trainer.v1.sampler.sync_refill_failed_groups=True

verl's V1 trainer logs the extra information of a reward in validation only, but it logs the metrics
that `sample` returns with a batch at every step. Use `RagReplayBufferAsync` in the asynchronous
modes. verl does not pass `algorithm.filter_groups` to a custom buffer: also set
`filter_groups_metric` in `trainer.v1.sampler.sampler_kwargs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import transfer_queue
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from rag_rewards.errors import GroupError
from rag_rewards_adapters.scoring import FAILED_SHARE
from rag_rewards_adapters.verl.config import RewardOptions

_EVICTED = "training/rollout_failure/evicted_samples"
_REPLACE_GROUPS = {"sync_refill_failed_groups": True, "gen_batch_size": 1}
"""Replace unscored groups, one prompt at a time."""
_READ_LOG = (
    "read the reasons and the rows in the log of the agent workers, or increase "
    "trainer.v1.sampler.sampler_kwargs.patience"
)


class _WholeGroups:
    """The part that both buffers add to those of verl.

    verl's synchronous buffer replaces a failed group only if none of its rollouts is scored. These
    buffers replace every group with a failed rollout, so that no group is partly trained.

    `sampler_kwargs` contains arguments of verl's buffer and `patience` (3). `sample` raises
    GroupError after `patience` consecutive batches with failed groups (at least a tenth as many as
    the batch has), and after `patience` times as many failed groups as a batch has before it is
    complete. At construction, the buffer checks the settings, the models and the data files of the
    training, if the reward is a recipe of this package (`RewardOptions.of_training`).
    """

    def __init__(
        self, *, sampler_kwargs: Mapping[str, Any] | None = None, **arguments: Any
    ) -> None:
        options = dict(sampler_kwargs or {})
        self._patience = int(options.pop("patience", 3))
        self._limit = math.inf
        self._failed = 0
        self._failed_batches = 0
        arguments = {**_REPLACE_GROUPS, **arguments, **options}
        super().__init__(sampler_kwargs=sampler_kwargs, **arguments)  # type: ignore[call-arg]
        _check(arguments.get("refill_fn"))

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, Any]:
        """Return a batch and its metrics, which include the means of the components."""
        self._limit, self._failed = self._patience * batch_size, 0
        if getattr(self, "train_batch_size", None) is None:
            self.train_batch_size = batch_size  # the unit of a filter's prompts in flight
        batch, metrics = super().sample(global_steps, partition_id, batch_size)  # type: ignore[misc]
        if partition_id == "train":
            self._end_after_failures(batch_size)
            failed = {"rag_rewards/not_scored_groups": float(self._failed)}
            metrics = {**metrics, **component_means(batch), **failed}
        return batch, metrics

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        """Return the groups to replace. Every group with a failed rollout is one of them."""
        stale, same, failed, counts = super()._terminal_eviction_reasons(  # type: ignore[misc]
            global_steps, partition_id
        )
        if partition_id != "val":
            failed = failed | self.failure_keys[partition_id]  # type: ignore[attr-defined]
        return stale, same, failed, counts

    def _evict_terminal_groups(self, *args: Any) -> Any:
        """Count the groups that verl removes because a rollout failed."""
        evicted = super()._evict_terminal_groups(*args)  # type: ignore[misc]
        self._failed += evicted[-1].get(_EVICTED, 0)
        if self._failed >= self._limit:
            raise GroupError(
                f"{self._failed} groups failed before a batch was complete, so the policy would "
                f"learn nothing: {_READ_LOG}"
            )
        return evicted

    def _end_after_failures(self, batch_size: int) -> None:
        """Raise GroupError after `patience` consecutive batches with failed groups."""
        has_failed = self._failed >= max(1.0, FAILED_SHARE * batch_size)
        self._failed_batches = self._failed_batches + 1 if has_failed else 0
        if self._failed_batches >= self._patience:
            raise GroupError(
                f"groups failed in {self._failed_batches} consecutive batches ({self._failed} in "
                f"the last one), so the policy would learn only from the other prompts: {_READ_LOG}"
            )


class RagReplayBuffer(_WholeGroups, ReplayBuffer):  # type: ignore[misc]
    """The buffer for `trainer.v1.trainer_mode=sync`."""


class RagReplayBufferAsync(_WholeGroups, ReplayBufferAsync):  # type: ignore[misc]
    """The buffer for the asynchronous modes."""


def _check(refill: Any) -> None:
    """Check the training whose method `refill` is, before it loads a model."""
    config = getattr(getattr(refill, "__self__", None), "config", None)
    if config is None:
        return
    function = config.reward.get("custom_reward_function") or {}
    options = function.get("reward_kwargs") or {}
    if options.get("recipe") or options.get("stages"):
        RewardOptions.of_training(config).check_judge()


def component_means(batch: Any) -> dict[str, float]:
    """Return the means of the components of a batch, as `rag_rewards/NAME/mean`."""
    if not batch.keys:
        return {}
    data = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"]
    )
    numbers = {}
    for key, entry in zip(batch.keys, list(data["extra_fields"]), strict=True):
        fields = getattr(entry, "data", entry)
        # A loop with several outputs has the score on each of them, so count a session once.
        numbers[key.rpartition("_")[0]] = fields.get("reward_extra_info") or {}
    return means(numbers.values())


def means(rollouts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number over the rollouts in which it is not NaN.

    >>> means([{"acc": 1.0, "cost": float("nan")}, {"acc": 0.0}])
    {'rag_rewards/acc/mean': 0.5}
    """
    columns: dict[str, list[float]] = {}
    for numbers in rollouts:
        for name, value in numbers.items():
            if not math.isnan(value):
                columns.setdefault(name, []).append(value)
    return {
        f"rag_rewards/{name}/mean": math.fsum(values) / len(values)
        for name, values in columns.items()
    }
