"""Scoring of one shard, in this process or to part files."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Container, Iterator, Sequence
from typing import IO, Literal

import msgspec

from rag_rewards.files.atomic import new_file
from rag_rewards.files.sources import chunks, group_chunks
from rag_rewards.files.storage import join, remove_file
from rag_rewards.rows import Chunk, Line, ScoredChunk, Totals
from rag_rewards.rows.line_groups import line_groups_by_key, line_groups_by_size
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.files import InputFile, open_rows, renamed
from rag_rewards.scoring.plan import Grouping, Shard
from rag_rewards.scoring.score_options import ScoreOptions

OnError = Literal["report", "stop"]


class ShardJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a process needs, besides a scorer, to score shards of one run.

    files     input files
    folder    folder of the part files, or of their records only if there is an `output`
    output    folder of an output that consists of part files; None for one file
    partial   the incomplete output, where workers of this machine write rows; None for part files
    columns   columns of fields that have another name, as in `ColumnMap`
    grouping  rows that form a group
    on_error  write rows in error to a file, or end the shard before the first one
    """

    files: list[InputFile]
    folder: str
    output: str | None = None
    partial: str | None = None
    columns: str | None = None
    grouping: Grouping = Grouping()
    on_error: OnError = "report"


class ShardTask(msgspec.Struct, frozen=True):
    """A shard to score. `repeated` are digests of group keys that occur in earlier shards."""

    shard: Shard
    repeated: list[bytes] = []


class Part(msgspec.Struct, kw_only=True):
    """The record of a scored shard. Checksums are CRC-32 values.

    shard            the shard; None for rows of a stream
    rows, errors     size of the scored rows and of the error records in bytes
    rows_checksum, errors_checksum  checksums of these bytes
    input_checksum   checksum of the lines that were read
    lines            number of lines that were read
    keys             digests of the keys of the groups, 8 bytes each
    totals           totals over the rows
    stopped_by       the first row in error, if the shard ends before it
    """

    shard: Shard | None = None
    rows: int = 0
    errors: int = 0
    rows_checksum: int = 0
    errors_checksum: int = 0
    input_checksum: int = 0
    lines: int = 0
    keys: bytes = b""
    totals: Totals = msgspec.field(default_factory=Totals)
    stopped_by: str = ""

    @property
    def index(self) -> int:
        """The position of the shard among all shards."""
        if self.shard is None:
            raise ValueError("the part of a stream has no shard")
        return self.shard.index

    @property
    def key_digests(self) -> Iterator[bytes]:
        """The digests of the keys."""
        return (self.keys[i : i + 8] for i in range(0, len(self.keys), 8))

    def add(self, chunk: ScoredChunk) -> None:
        """Add scored rows and error records."""
        records = b"".join(chunk.errors)
        self.rows += len(chunk.output)
        self.errors += len(records)
        self.rows_checksum = zlib.crc32(chunk.output, self.rows_checksum)
        self.errors_checksum = zlib.crc32(records, self.errors_checksum)
        self.totals.merge(chunk.totals)


def grouping_of(scorer: Scorer, options: ScoreOptions) -> Grouping:
    """Return the rows that belong to one shard."""
    if scorer.scope == "group":
        return Grouping(options.group_size is None, options.group_size)
    return Grouping(together=options.models.is_set)


def score_shard(
    scorer: Scorer,
    job: ShardJob,
    shard: Shard,
    write: Callable[[ScoredChunk], None],
    *,
    earlier: Container[bytes] = (),
) -> Part:
    """Score a shard, pass each scored chunk to `write`, and return the record of the shard.

    `earlier` are digests of the keys of earlier groups, whose further rows are errors. Raises
    UsageError if a file has changed.
    """
    part = Part(shard=shard)
    keys: set[bytes] = set()
    for chunk in _chunks(job, _counted_lines(job.files, shard, part), keys, earlier):
        scored = scorer.score_rows(chunk)
        if scored.errors and job.on_error == "stop":
            part.stopped_by = scored.first_error
            scored = scored.before_error()
        write(scored)
        part.add(scored)
        if part.stopped_by:
            break
    part.keys = b"".join(sorted(keys))
    return part


def input_lines(files: Sequence[InputFile], shard: Shard) -> Iterator[Line]:
    """Yield the rows of a shard with their line numbers. Raises UsageError if a file changed."""
    for piece in shard.pieces:
        with contextlib.closing(open_rows(files[piece.file])) as rows:
            yield from rows.read(piece)


def _counted_lines(files: Sequence[InputFile], shard: Shard, part: Part) -> Iterator[Line]:
    lines = checksum = 0
    for number, line in input_lines(files, shard):
        lines += 1
        checksum = zlib.crc32(line, checksum)
        yield number, line
    part.lines, part.input_checksum = lines, checksum


def _chunks(
    job: ShardJob, lines: Iterator[Line], keys: set[bytes], earlier: Container[bytes]
) -> Iterator[Chunk]:
    lines = renamed(lines, job.columns)
    if job.grouping.size is not None:
        return group_chunks(line_groups_by_size(lines, job.grouping.size))
    if job.grouping.by_key:
        return group_chunks(line_groups_by_key(lines, keys, earlier))
    return chunks(lines, with_groups=job.grouping.together)


# --- part files --------------------------------------------------------------------------------


class PartFiles:
    """The files of a shard: scored rows, error records, and the record."""

    def __init__(self, job: ShardJob, index: int) -> None:
        name = f"{index:06d}"
        self.record = join(job.folder, f"{name}.json")
        folder = job.folder
        if job.output is not None:
            folder, name = job.output, f"part-{index:05d}"
        self.rows = join(folder, f"{name}.jsonl")
        self.errors = join(folder, f"{name}.errors.jsonl")

    def remove(self) -> None:
        """Remove the files, the record first."""
        for path in (self.record, self.rows, self.errors):
            remove_file(path)


def score_to_part(
    scorer: Scorer, job: ShardJob, task: ShardTask, earlier: Container[bytes] = ()
) -> Part:
    """Score a shard to part files, and return its record.

    The files get their names when they are complete, the record at last. Several processes may
    score one shard, since their files are equal. `earlier` are digests of the keys of earlier
    groups, if this process knows all of them.
    """
    with part_files(job, task.shard.index) as (rows, errors):

        def write(chunk: ScoredChunk) -> None:
            rows.write(chunk.output)
            errors.writelines(chunk.errors)

        earlier = earlier or frozenset(task.repeated)
        part = score_shard(scorer, job, task.shard, write, earlier=earlier)
    write_record(job, part)
    return part


@contextlib.contextmanager
def part_files(job: ShardJob, index: int) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open the files of rows and errors of a shard, which get their names at the end."""
    files = PartFiles(job, index)
    is_output = job.output is not None
    with (
        new_file(files.rows, sync=is_output) as rows,
        new_file(files.errors, sync=is_output, keep_empty=not is_output) as errors,
    ):
        yield rows, errors


def write_record(job: ShardJob, part: Part) -> None:
    """Write the record of a shard, whose part files are complete."""
    with new_file(PartFiles(job, part.index).record, sync=False) as record:
        record.write(msgspec.json.encode(part))
