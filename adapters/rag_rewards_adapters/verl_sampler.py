"""Replay buffers of verl's V1 trainer that log components and replace groups without a score.

    trainer.v1.sampler.custom_sampler.path=pkg://rag_rewards_adapters.verl_sampler
    trainer.v1.sampler.custom_sampler.name=RagReplayBuffer
    trainer.v1.sampler.sync_refill_failed_groups=True

verl's V1 trainer logs a reward's extra information in validation alone; what `sample` returns
beside its batch goes to the trainer's logger at every step. `RagReplayBufferAsync` is the same for
the asynchronous modes. verl gives a custom buffer nothing of `algorithm.filter_groups`: put
`filter_groups_metric` (and `train_batch_size`) into `trainer.v1.sampler.sampler_kwargs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import transfer_queue
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from rag_rewards.errors import GroupError

_FAILED = "training/rollout_failure/evicted_samples"
_REFILLED = {"sync_refill_failed_groups": True, "gen_batch_size": 1}
"""Groups without a score are replaced, one prompt at a time."""


class _Logging:
    """What both buffers do around verl's own.

    Of `sampler_kwargs`, `patience` is ours: with so many batches' worth of groups failed in a
    row, and none complete, something is wrong with data or settings (GroupError). All other
    entries are arguments of verl's buffer.
    """

    def __init__(self, *, sampler_kwargs: Mapping[str, Any] | None = None, **given: Any) -> None:
        own = dict(sampler_kwargs or {})
        self._patience = int(own.pop("patience", 3))
        self._limit = math.inf
        self._failed = 0
        super().__init__(sampler_kwargs=sampler_kwargs, **{**_REFILLED, **given, **own})  # type: ignore[call-arg]

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, Any]:
        """A batch and its metrics, the means of its components among them."""
        self._limit, self._failed = self._patience * batch_size, 0
        batch, metrics = super().sample(global_steps, partition_id, batch_size)  # type: ignore[misc]
        if partition_id == "train":
            metrics = {**metrics, **means_of(batch)}
        return batch, metrics

    def _evict_terminal_groups(self, *args: Any) -> Any:
        """Counts groups that are thrown away for want of a score; verl logs the number."""
        evicted = super()._evict_terminal_groups(*args)  # type: ignore[misc]
        self._failed += evicted[-1].get(_FAILED, 0)
        if self._failed >= self._limit:
            raise GroupError(
                f"{self._failed} groups failed while a batch was waited for: nothing would be "
                "learned; the agent workers' log names their rows and the reasons"
            )
        return evicted


class RagReplayBuffer(_Logging, ReplayBuffer):  # type: ignore[misc]
    """For `trainer.v1.trainer_mode=sync`."""


class RagReplayBufferAsync(_Logging, ReplayBufferAsync):  # type: ignore[misc]
    """For the asynchronous modes."""


def means_of(batch: Any) -> dict[str, float]:
    """Means of the components of a batch's rollouts, as `rag_rewards/NAME/mean`."""
    if not batch.keys:
        return {}
    data = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"]
    )
    infos = {}
    for key, entry in zip(batch.keys, list(data["extra_fields"]), strict=True):
        fields = getattr(entry, "data", entry)
        # A loop with several outputs has the score on each of them: once for a session.
        infos[key.rpartition("_")[0]] = fields.get("reward_extra_info") or {}
    return means(infos.values())


def means(infos: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Means over those that have a value.

    >>> means([{"acc": 1.0, "cost": float("nan")}, {"acc": 0.0}])
    {'rag_rewards/acc/mean': 0.5}
    """
    known: dict[str, list[float]] = {}
    for info in infos:
        for name, value in info.items():
            if not math.isnan(value):
                known.setdefault(name, []).append(value)
    return {
        f"rag_rewards/{name}/mean": math.fsum(values) / len(values)
        for name, values in known.items()
    }
