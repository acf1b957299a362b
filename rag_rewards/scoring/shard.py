"""Scoring of one shard: its rows, its part files, and its record."""

from __future__ import annotations

import contextlib
import zlib
from array import array
from collections.abc import Callable, Container, Iterator
from typing import IO

import msgspec

from rag_rewards.files.atomic import new_file
from rag_rewards.files.sources import chunks, group_chunks
from rag_rewards.files.storage import join, open_file, remove_file
from rag_rewards.rows import Chunk, Line, Totals
from rag_rewards.rows.line_groups import line_groups_by_key, line_groups_by_size
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.input_files import InputFile, open_rows, renamed
from rag_rewards.scoring.options import OnError, ScoreOptions
from rag_rewards.scoring.plan import Grouping, Shard

_BLOCK = 1 << 20


class ShardJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a process needs, besides a scorer, to score shards of one run.

    files     input files
    numbers   file with the line numbers of the input, if its lines are in another order
    folder    folder of the part files
    sync      write part files to the disk before they get their names
    columns   columns of fields that have another name, as in `ColumnMap`
    grouping  rows that form a group
    on_error  write rows in error to a file, or end the shard before the first one
    """

    files: list[InputFile]
    folder: str
    numbers: str | None = None
    sync: bool = False
    columns: str | None = None
    grouping: Grouping = Grouping()
    on_error: OnError = "report"

    def rows_path(self, index: int) -> str:
        """Return the file of the scored rows of a shard."""
        return join(self.folder, f"part-{index:05d}.jsonl")

    def errors_path(self, index: int) -> str:
        """Return the file of the error records of a shard, which exists only if it has some."""
        return join(self.folder, f"part-{index:05d}.errors.jsonl")


class ShardTask(msgspec.Struct, frozen=True):
    """A shard to score. `repeated` are digests of group keys that occur in earlier shards."""

    shard: Shard
    repeated: list[bytes] = []


class Part(msgspec.Struct, kw_only=True, tag="part"):
    """The record of a scored shard. Checksums are CRC-32 values.

    shard            the shard
    rows, errors     size of the scored rows and of the error records in bytes
    rows_checksum, errors_checksum  checksums of these bytes
    input_checksum   checksum of the lines that were read
    keys             digests of the keys of the groups, 8 bytes each
    totals           totals over the rows
    stopped_by       the first row in error, if the shard ends before it
    """

    shard: Shard
    rows: int = 0
    errors: int = 0
    rows_checksum: int = 0
    errors_checksum: int = 0
    input_checksum: int = 0
    keys: bytes = b""
    totals: Totals = msgspec.field(default_factory=Totals)
    stopped_by: str = ""

    @property
    def key_digests(self) -> Iterator[bytes]:
        """The digests of the keys."""
        return (self.keys[i : i + 8] for i in range(0, len(self.keys), 8))


def grouping_of(scorer: Scorer, options: ScoreOptions) -> Grouping:
    """Return the rows that belong to one shard."""
    if scorer.scope == "group":
        return Grouping(options.group_size is None, options.group_size)
    return Grouping(together=options.models.is_set)


def score_shard(
    scorer: Scorer,
    job: ShardJob,
    task: ShardTask,
    files: tuple[IO[bytes], IO[bytes]],
    *,
    earlier: Container[bytes] = (),
    on_chunk: Callable[[Totals], None] | None = None,
) -> Part:
    """Score a shard, append its rows and its error records to two files, and return its record.

    `earlier` are digests of the keys of earlier groups, if this process knows all of them. Further
    rows of these groups are errors. Raises UsageError if an input file has changed.
    """
    part = Part(shard=task.shard)
    keys: set[bytes] = set()
    lines = renamed(_summed(input_lines(job, task.shard), part), job.columns)
    for chunk in line_chunks(lines, job.grouping, keys, earlier or frozenset(task.repeated)):
        scored = scorer.score_rows(chunk)
        if scored.errors and job.on_error == "stop":
            part.stopped_by = scored.first_error
            scored = scored.before_error()
        errors = b"".join(scored.errors)
        for handle, data in zip(files, (scored.output, errors), strict=True):
            handle.write(data)
        part.rows += len(scored.output)
        part.rows_checksum = zlib.crc32(scored.output, part.rows_checksum)
        part.errors += len(errors)
        part.errors_checksum = zlib.crc32(errors, part.errors_checksum)
        part.totals.merge(scored.totals)
        if on_chunk is not None:
            on_chunk(scored.totals)
        if part.stopped_by:
            break
    part.keys = b"".join(sorted(keys))
    return part


# --- the rows of a shard -------------------------------------------------------------------------


def input_lines(job: ShardJob, shard: Shard) -> Iterator[Line]:
    """Yield the rows of a shard with their line numbers. Raises UsageError if a file changed."""
    for piece in shard.pieces:
        with contextlib.closing(open_rows(job.files[piece.file])) as rows:
            lines = rows.read(piece)
            if job.numbers is None:
                yield from lines
                continue
            numbers = array("q")
            with open_file(job.numbers) as handle:
                handle.seek(piece.first * numbers.itemsize)
                numbers.frombytes(handle.read(piece.lines * numbers.itemsize))
            for position, line in lines:
                yield numbers[position - piece.first - 1], line


def input_checksum(job: ShardJob, shard: Shard) -> int:
    """Return the checksum of the lines of a shard."""
    part = Part(shard=shard)
    for _ in _summed(input_lines(job, shard), part):
        pass
    return part.input_checksum


def _summed(lines: Iterator[Line], part: Part) -> Iterator[Line]:
    """Yield lines, and then set their checksum in the record of a shard."""
    checksum = 0
    for number, line in lines:
        checksum = zlib.crc32(line, checksum)
        yield number, line
    part.input_checksum = checksum


def line_chunks(
    lines: Iterator[Line],
    grouping: Grouping,
    keys: set[bytes] | None = None,
    earlier: Container[bytes] = (),
) -> Iterator[Chunk]:
    """Yield lines in chunks that contain whole groups.

    Adds the digests of the keys of the groups to `keys`. Further rows of groups whose digests are
    in `earlier` are errors.
    """
    if grouping.size is not None:
        return group_chunks(line_groups_by_size(lines, grouping.size))
    if grouping.by_key:
        return group_chunks(line_groups_by_key(lines, keys, earlier))
    return chunks(lines, with_groups=grouping.together)


# --- part files ----------------------------------------------------------------------------------


@contextlib.contextmanager
def part_files(job: ShardJob, index: int) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open the part files of a shard, which get their names at the end of the block.

    Several processes may score one shard, since their files are equal. A file of errors without
    content gets no name.
    """
    with (
        new_file(job.rows_path(index), sync=job.sync) as rows,
        new_file(job.errors_path(index), sync=job.sync, keep_empty=False) as errors,
    ):
        yield rows, errors


def remove_part(job: ShardJob, part: Part) -> None:
    """Remove the part files of a shard."""
    remove_file(job.rows_path(part.shard.index))
    if part.errors:
        remove_file(job.errors_path(part.shard.index))


def is_intact(job: ShardJob, part: Part) -> bool:
    """Return whether the part files of a shard exist without damage."""
    try:
        with open_file(job.rows_path(part.shard.index)) as rows:
            if not matches(rows, part.rows, part.rows_checksum) or rows.read(1):
                return False
        if not part.errors:
            return True
        with open_file(job.errors_path(part.shard.index)) as errors:
            return matches(errors, part.errors, part.errors_checksum) and not errors.read(1)
    except FileNotFoundError:
        return False


def matches(handle: IO[bytes], size: int, checksum: int) -> bool:
    """Return whether the next bytes of a file have this checksum."""
    value = 0
    while size and (block := handle.read(min(size, _BLOCK))):
        value = zlib.crc32(block, value)
        size -= len(block)
    return not size and value == checksum
