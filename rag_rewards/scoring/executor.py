"""The protocol of executors, which score shards somewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from rag_rewards.scoring.score import Part, ShardJob, ShardTask


class Executor(Protocol):
    """Scores shards with `score_to_part` in other processes.

    The processes share the folder of the job with the process that calls `run`.
    """

    def run(self, tasks: Iterable[ShardTask]) -> Iterator[Part]:
        """Yield the record of each shard when its files are complete, in any order.

        Takes a task only when a worker is about to be free, so that the number of open tasks is
        bounded. May be called again while an earlier call is still going on. Raises BackendError
        if workers end repeatedly while they score one shard.
        """
        ...


class ClusterExecutor(Executor, Protocol):
    """An executor that is ready before the job of the run is known."""

    def begin(self, job: ShardJob) -> None:
        """Give the job to the workers. Raises UsageError if they cannot use its files."""
        ...
