"""A scored shard whose rows are in memory until it is known where they belong."""

from __future__ import annotations

import shutil
from tempfile import SpooledTemporaryFile
from typing import IO

from rag_rewards.files.atomic import new_file
from rag_rewards.rows import ScoredChunk
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.score import (
    PartFiles,
    ShardJob,
    ShardTask,
    part_files,
    score_shard,
    write_record,
)

HELD_BYTES = 1 << 26
"""Number of bytes above which rows are in a temporary file instead of in memory."""

_BLOCK = 1 << 20


class HeldPart:
    """A scored shard of a job with a partial output. Its rows and errors are not in files yet."""

    def __init__(self, scorer: Scorer, job: ShardJob, task: ShardTask) -> None:
        self._job = job
        # Opened before the run receives the record of the part: a run that begins later has
        # another file of this name.
        self._output = open(str(job.partial), "r+b")  # noqa: SIM115 (lives as long as the part)
        self._rows = _spool(job)
        self._errors = _spool(job)
        self.part = score_shard(
            scorer, job, task.shard, self._hold, earlier=frozenset(task.repeated)
        )

    def _hold(self, chunk: ScoredChunk) -> None:
        self._rows.write(chunk.output)
        self._errors.writelines(chunk.errors)

    def write_to_files(self) -> None:
        """Write the rows, the errors and the record to part files."""
        with part_files(self._job, self.part.index) as (rows, errors):
            _copy(self._rows, rows)
            _copy(self._errors, errors)
        write_record(self._job, self.part)

    def write_to_output(self, position: int) -> None:
        """Write the rows to the output from a position on, and the errors to a part file."""
        self._output.seek(position)
        _copy(self._rows, self._output)
        self._output.flush()
        if self.part.errors:
            with new_file(PartFiles(self._job, self.part.index).errors, sync=False) as errors:
                _copy(self._errors, errors)

    def close(self) -> None:
        """Release the memory, and close the output."""
        self._output.close()
        self._rows.close()
        self._errors.close()


def _spool(job: ShardJob) -> SpooledTemporaryFile[bytes]:
    return SpooledTemporaryFile(HELD_BYTES, dir=job.folder)


def _copy(source: SpooledTemporaryFile[bytes], target: IO[bytes]) -> None:
    source.seek(0)
    shutil.copyfileobj(source, target, _BLOCK)
