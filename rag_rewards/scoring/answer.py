"""The answer of a process that scores shards: a record, or the error that ends the run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rag_rewards.errors import RagRewardsError, UsageError
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.score import Part, ShardJob, ShardTask, score_to_part
from rag_rewards.scoring.score_options import OutputError


class ShardAnswer(msgspec.Struct, frozen=True):
    """The record of a shard, or the message of the error that ends the run."""

    part: Part | None = None
    usage_error: str = ""
    output_error: str = ""

    def result(self) -> Part:
        """Return the record. Raises the error that ends the run."""
        if self.part is None:
            error = UsageError if self.usage_error else OutputError
            raise error(self.usage_error or self.output_error)
        return self.part


def answer_task(scorer: Scorer, job: ShardJob, task: ShardTask) -> ShardAnswer:
    """Score a shard to part files."""
    return answer_with(job, lambda: score_to_part(scorer, job, task))


def answer_with(job: ShardJob, scored: Callable[[], Part]) -> ShardAnswer:
    """Return the record that a function returns, or the message of its error."""
    try:
        return ShardAnswer(scored())
    except RagRewardsError as error:
        return ShardAnswer(usage_error=str(error))
    except OSError as error:
        name = error.filename2 or error.filename or job.partial or job.folder
        return ShardAnswer(output_error=f"cannot write {name}: {error.strerror}")
