"""The state of a run that scores a file: a journal, and what every store of a run does with it.

The journal begins with the settings of the run. A record follows for each complete shard, in any
order, and at last that of the complete run. The rows of a recorded shard are in its part files or
in the output. Checksums find rows that a power failure has damaged; they are scored again.
"""

from __future__ import annotations

import contextlib
import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from rag_rewards.errors import UsageError, cannot_resume
from rag_rewards.files.atomic import write_file
from rag_rewards.files.storage import (
    is_remote,
    join,
    local_path,
    names_in,
    read_file,
    remove_file,
    remove_folder,
)
from rag_rewards.files.version import FileVersion
from rag_rewards.rows import Totals
from rag_rewards.rows.decoding import NOT_JSON
from rag_rewards.scoring.input_files import is_parquet
from rag_rewards.scoring.plan import Shard
from rag_rewards.scoring.run_settings import RunSettings
from rag_rewards.scoring.shard import Part, ShardJob, input_checksum, is_intact
from rag_rewards.scoring.spool import NO_ROWS, Fingerprint

SYNC_SECONDS = 5.0
"""A power failure loses at most about the work of this time. A killed process loses none of it."""
JOURNAL = "journal.jsonl"
T = TypeVar("T")


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a journal: the settings, and what two runs with them may do differently.

    shard_bytes  size of a shard
    parts        name of the folder of the part files of one file
    """

    settings: RunSettings
    shard_bytes: int
    parts: str = ""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    """The record of a complete run: the end of a journal, and OUT.run.json.

    input        fingerprint of an input that was copied
    replaced     the file that had the name of the output before
    output_size  size of the output in bytes; 0 before it has its name
    """

    settings: RunSettings
    totals: Totals
    rows_size: int
    errors_size: int
    input: Fingerprint = NO_ROWS
    replaced: FileVersion | None = None
    output_size: int = 0


class Journal:
    """The journal of a run. In an object store it is a folder with an object for each record."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle: IO[bytes] | None = None
        self._length = 0

    def exists(self) -> bool:
        """Return whether there is a journal, which may be that of something else."""
        return (
            bool(names_in(self._path))
            if is_remote(self._path)
            else FileVersion.of(self._path) is not None
        )

    def start(self, state: RunState) -> None:
        """Begin a new journal. The files beside it are those of a run, before and after a kill."""
        self.close()
        write_file(self._record_path(0), msgspec.json.encode(state) + b"\n")
        if is_remote(self._path):
            for name in names_in(self._path)[1:]:
                remove_file(join(self._path, name))
        self._length = 1
        self._open()

    def _record_path(self, number: int) -> str:
        return join(self._path, f"{number:06d}.json") if is_remote(self._path) else self._path

    def _open(self) -> None:
        if not is_remote(self._path):
            self._handle = open(local_path(self._path), "ab")  # noqa: SIM115 (closed by `close`)

    def read(self) -> tuple[RunState, list[Part | RunRecord]] | None:
        """Return the settings and the records of an earlier run, and continue its journal.

        A record that was not written completely ends the journal. Returns None without a journal.
        """
        lines = self._lines()
        if not lines:
            return None
        state = _decoded(lines[0], RunState, self._path)
        records: list[Part | RunRecord] = []
        for line in lines[1:]:
            try:
                records.append(msgspec.json.decode(line, type=Part | RunRecord))
            except NOT_JSON:
                break
        self._length = 1 + len(records)
        self._open()
        if self._handle is not None:
            self._handle.truncate(sum(map(len, lines[: self._length])))
        return state, records

    def _lines(self) -> list[bytes]:
        if is_remote(self._path):
            return [read_file(join(self._path, name)) for name in names_in(self._path)]
        try:
            data = read_file(self._path)
        except FileNotFoundError:
            return []
        lines = data.splitlines(keepends=True) or [b""]
        return lines if len(lines) == 1 or lines[-1].endswith(b"\n") else lines[:-1]

    def add(self, record: Part | RunRecord) -> None:
        """Add a record. After a kill of this process, it is in the journal."""
        line = msgspec.json.encode(record) + b"\n"
        if self._handle is None:
            write_file(self._record_path(self._length), line)
            self._length += 1
            return
        self._handle.write(line)
        self._handle.flush()

    def sync(self) -> None:
        """Write the journal to the disk."""
        if self._handle is not None:
            os.fsync(self._handle.fileno())

    def remove(self) -> None:
        """Remove the journal, so that the files beside it are no longer those of a run."""
        self.close()
        remove_file(self._path) if not is_remote(self._path) else remove_folder(self._path)

    def close(self) -> None:
        if self._handle is not None:
            with contextlib.suppress(OSError):
                self._handle.close()


class RunStore:
    """The files of a run, and the records of the shards that an earlier run has scored.

    A shard is scored to the files of `writing` or to its part files, recorded, and then appended
    to the output in its turn.

    name  the output, for messages
    path  the local folder of the run, where a copy of the input can be
    """

    path: Path

    def __init__(self, name: str, settings: RunSettings, journal: str) -> None:
        self.name = name
        self.settings = settings
        self.journal = Journal(journal)
        self._parts: dict[int, Part] = {}
        self._synced = time.monotonic()

    # --- start ---------------------------------------------------------------------------------

    def resume(self) -> RunState | RunRecord | None:
        """Continue an earlier run, and return its beginning, or its record if it is complete.

        Returns None if no run has begun. Raises UsageError if its settings or its input differ.
        """
        raise NotImplementedError

    def begin(self, shard_bytes: int) -> RunState:
        """Begin a new run. The files of an earlier run are removed."""
        raise NotImplementedError

    def parts_folder(self, *, remote: bool) -> str:
        """Return the folder of the part files; with `remote`, one that other machines can use.

        For one object of an object store, it is beside the object.
        """
        raise NotImplementedError

    # --- shards --------------------------------------------------------------------------------

    def recorded(self, job: ShardJob, shard: Shard) -> Part | None:
        """Return the record of a shard that an earlier run has scored, or None without its rows.

        Raises UsageError if the rows of the shard have changed. For Parquet they are not compared,
        because decoding takes as long as scoring.
        """
        part = self._parts.pop(shard.index, None)
        if part is None or not self._has_rows(job, part):
            return None
        is_comparable = not any(is_parquet(job.files[piece.file].path) for piece in shard.pieces)
        if part.shard != shard or (
            is_comparable and part.input_checksum != input_checksum(job, shard)
        ):
            raise changed_input(self.name)
        return part

    def _has_rows(self, job: ShardJob, part: Part) -> bool:
        return is_intact(job, part)

    def writing(
        self, job: ShardJob, index: int
    ) -> AbstractContextManager[tuple[IO[bytes], IO[bytes]]]:
        """Open the files to which this process writes the rows and the errors of a shard."""
        raise NotImplementedError

    def record(self, part: Part) -> None:
        """Record a shard whose rows are complete."""
        self.journal.add(part)

    def append(self, job: ShardJob, part: Part) -> None:
        """Append a shard to the output in its turn, also one that ends at a row in error."""
        raise NotImplementedError

    # --- end -----------------------------------------------------------------------------------

    def stop(self) -> str:
        """Leave the rows before the first row in error, and return where they are."""
        raise NotImplementedError

    def finish(self, totals: Totals, fingerprint: Fingerprint) -> None:
        """Complete the output, and remove what is only needed to continue."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the files. They remain for another run, unless nothing was scored."""
        raise NotImplementedError


def _decoded(data: bytes, type_: type[T], path: str) -> T:
    """Return the content of a file of a run. Raises UsageError if it is that of something else."""
    try:
        return msgspec.json.decode(data, type=type_)
    except NOT_JSON as error:
        raise UsageError(
            f"{path} is not the file of an earlier run ({error}): choose another output"
        ) from None


def decoded_file(path: str, type_: type[T]) -> T | None:
    """Return the content of a file of a run, or None without a file of this name."""
    return None if FileVersion.of(path) is None else _decoded(read_file(path), type_, path)


def changed_input(output: str) -> UsageError:
    """Return the error for an input that is not that of the earlier run."""
    return cannot_resume(output, "the input has changed")
