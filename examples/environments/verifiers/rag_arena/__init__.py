"""Tasks of verifiers with the reward arena."""

from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf
from rag_rewards_adapters.verifiers import reward
from rag_rewards_adapters.verifiers_taskset import RagData, read_data

score = reward("arena", hardened=True)


class ArenaTask(vf.Task[RagData]):
    @vf.reward
    async def arena(self, trace: vf.Trace) -> float:
        return await score(self.data, trace)


class ArenaConfig(vf.TasksetConfig):
    data: Path = Path(__file__).with_name("train.jsonl")
    """The rows that `rag-rewards prepare -t verifiers` wrote."""


class ArenaTaskset(vf.Taskset[ArenaTask, ArenaConfig]):
    def load(self) -> Iterator[ArenaTask]:
        return (ArenaTask(data, self.config.task) for data in read_data(self.config.data))


__all__ = ["ArenaTaskset"]
