"""The records of shards in input order, although other processes complete them in any order."""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterator
from itertools import chain

import msgspec

from rag_rewards.files.storage import read_file
from rag_rewards.rows.decoding import NOT_JSON
from rag_rewards.scoring.executor import Executor
from rag_rewards.scoring.files import is_parquet
from rag_rewards.scoring.plan import Shard
from rag_rewards.scoring.positions import Positions
from rag_rewards.scoring.reader import changed_input
from rag_rewards.scoring.row_files import is_intact
from rag_rewards.scoring.score import Part, PartFiles, ShardJob, ShardTask, input_lines


class CompleteParts:
    """The parts that an earlier process has completed.

    output     the output of the run, for messages
    keys       digests of the keys of earlier groups, which the caller extends
    positions  where the sizes of the parts are added
    """

    def __init__(
        self,
        job: ShardJob,
        output: str,
        keys: Container[bytes],
        positions: Positions | None = None,
    ) -> None:
        self._job = job
        self._output = output
        self._keys = keys
        self._positions = positions

    def find(self, shard: Shard) -> Part | None:
        """Return the part of a shard, or None if its files are not complete.

        Raises UsageError if the rows of the shard have changed.
        """
        files = PartFiles(self._job, shard.index)
        try:
            part = msgspec.json.decode(read_file(files.record), type=Part)
        except (FileNotFoundError, *NOT_JSON):
            return None
        if part.stopped_by or not is_intact(files, part):
            return None
        if any(digest in self._keys for digest in part.key_digests):
            return None
        self.check_input(part, shard)
        if self._positions is not None:
            self._positions.add(part)
        return part

    def check_input(self, part: Part, shard: Shard | None) -> None:
        """Raise UsageError if a shard is not the one that an earlier process has scored."""
        if shard is not None and part.shard == shard:
            files = self._job.files
            if any(is_parquet(files[piece.file].path) for piece in shard.pieces):
                return  # decoding would take as long as scoring
            checksum = 0
            for _, line in input_lines(files, shard):
                checksum = zlib.crc32(line, checksum)
            if checksum == part.input_checksum:
                return
        raise changed_input(self._output)


def parts_in_order(
    executor: Executor, shards: Iterator[Shard], complete: CompleteParts, keys: Container[bytes]
) -> Iterator[Part]:
    """Score the shards that are not complete, and yield the parts of all shards in input order.

    `keys` are the digests of the keys of earlier groups. The caller adds those of each part.
    """
    first = next(shards, None)
    if first is None:
        return
    due = first.index
    parts: dict[int, Part] = {}

    def tasks() -> Iterator[ShardTask]:
        for shard in chain([first], shards):
            part = complete.find(shard)
            if part is None:
                yield ShardTask(shard)
            else:
                parts[shard.index] = part

    for scored in chain(executor.run(tasks()), [None]):
        if scored is not None:
            parts[scored.index] = scored
        while due in parts:
            yield _without_repeated_keys(executor, parts.pop(due), keys)
            due += 1


def _without_repeated_keys(executor: Executor, part: Part, keys: Container[bytes]) -> Part:
    """Return a part whose groups do not occur in earlier shards. Scores it again otherwise."""
    repeated = [digest for digest in part.key_digests if digest in keys]
    if not repeated or part.shard is None:
        return part
    (again,) = executor.run([ShardTask(part.shard, repeated)])
    return again
