"""The folder `OUT.run` of a run that writes `OUT`: what the run needs to continue.

    settings.json   settings of the run, input files, size of a shard
    parts.jsonl     one record for each shard whose rows are in OUT.partial, in order
    errors.jsonl    the error records of these shards
    parts-ID/       shards that are complete before an earlier one
    finished.json   the record of the complete run

A run with `resume` leaves this record beside the output as OUT.run.json, so that the same command
can be repeated and finds a complete output. Other runs leave no record.

`OUT.partial` contains the scored rows, and its lock protects the folder. Workers can have written
rows behind those of the recorded shards; a run that continues removes them. Checksums find rows
that a power failure has damaged. They are scored again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from rag_rewards.errors import UsageError, cannot_resume
from rag_rewards.files.atomic import sync_folder, upload, write_file
from rag_rewards.files.output import Output
from rag_rewards.files.storage import (
    is_remote,
    join,
    local_path,
    remove_file,
    remove_folder,
    with_suffix,
)
from rag_rewards.files.version import FileVersion
from rag_rewards.rows import Totals
from rag_rewards.rows.decoding import NOT_JSON
from rag_rewards.scoring.row_files import (
    OrderedRows,
    RowFiles,
    SpooledRows,
    flush_files,
    intact_parts,
)
from rag_rewards.scoring.run_settings import RunSettings
from rag_rewards.scoring.score import Part

SYNC_SECONDS = 5.0
"""A power failure loses at most about the work of this time. A killed process loses none of it."""

_BLOCK = 1 << 20
_NAMES = ("settings.json", "finished.json", "record.json", "parts", "errors.jsonl", "unsorted")
"""The beginnings of the names in the folder. Incomplete files have a dot before them."""
T = TypeVar("T")


class _RunState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of settings.json."""

    settings: RunSettings
    shard_bytes: int
    parts: str


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a complete run: finished.json and OUT.run.json.

    stream       number of lines and checksum of an input that one reader has read
    replaced     the file that had the name of the output before
    output_size  size of the output in bytes; 0 before it has its name
    """

    settings: RunSettings
    totals: Totals
    rows_size: int
    errors_size: int
    stream: tuple[int, int] = (0, 0)
    replaced: FileVersion | None = None
    output_size: int = 0


class RunFolder:
    """The folder of a run, and the open files to which it appends.

    parts      the records of the shards whose rows are in the partial file
    rows_size  size of their rows in bytes
    """

    def __init__(
        self, output: Output, errors: str, settings: RunSettings, *, is_sorted: bool = False
    ) -> None:
        if output.partial is None or output.target is None:
            raise UsageError(f"{output.path} is not a regular file: write to a regular file")
        self.output = output
        self.settings = settings
        self.parts: list[Part] = []
        self.shard_bytes = 0
        self._is_sorted = is_sorted
        self._target = output.target
        self._partial = output.partial
        self._errors_target = errors
        self._path = self._target.with_name(self._target.name + ".run")
        self._record_path = finished_record_of(self._target)
        self._files: RowFiles | None = None
        self._journal: IO[bytes] | None = None
        self._parts_name = ""
        self.rows_size = self._errors_size = 0
        self._is_finished = self._leaves_record = False
        self._synced = time.monotonic()

    # --- start ---------------------------------------------------------------------------------

    def start(self, shard_bytes: int) -> None:
        """Begin a new run. Files of an earlier run that did not end are removed."""
        self._remove_earlier()
        self.output.renew()
        self._path.mkdir()
        self.shard_bytes = shard_bytes
        self._parts_name = f"parts-{secrets.token_hex(4)}"
        state = _RunState(settings=self.settings, shard_bytes=shard_bytes, parts=self._parts_name)
        write_file(self._path / "settings.json", msgspec.json.encode(state))
        self._open()

    def _remove_earlier(self) -> None:
        """Remove the folder of an earlier run. Raises UsageError if it contains other files."""
        is_folder = self._path.is_dir() and not self._path.is_symlink()
        names = os.listdir(self._path) if is_folder else [""] * os.path.lexists(self._path)
        if other := [name for name in names if not name.lstrip(".").startswith(_NAMES)]:
            raise UsageError(
                f"{self._path / other[0]} is not a file of a run: rename {self._path}, or choose "
                "another output"
            )
        # Without this record, no later run takes the partial file for a complete one.
        (self._path / "finished.json").unlink(missing_ok=True)
        shutil.rmtree(self._path, ignore_errors=True)

    def resume(self) -> RunRecord | None:
        """Continue an earlier run, if there is one. Returns its record if it is complete.

        Raises UsageError if its settings or its input differ. If no run has begun, `has_begun` is
        false afterwards.
        """
        self._leaves_record = True
        record = _decoded(self._path / "finished.json", RunRecord)
        if record is not None:
            self._check(record.settings)
            return self._publish(record) if self._has_output(record) else None
        state = _decoded(self._path / "settings.json", _RunState)
        if state is not None:
            self.settings.check(state.settings, self.output.path)
            self.shard_bytes, self._parts_name = state.shard_bytes, state.parts
            self._open()
            self._read_journal()
            return None
        return self._complete_output()

    @property
    def has_begun(self) -> bool:
        """Whether the files of the run are open."""
        return self._journal is not None

    def _complete_output(self) -> RunRecord | None:
        """Return the record of the complete output, or None without an output."""
        size = self.output.complete_size()
        if size is None:
            return None
        record = _decoded(self._record_path, RunRecord)
        if record is None:
            raise cannot_resume(
                self.output.path,
                f"it exists without {self._record_path.name}, which a run with resume leaves",
            )
        self._check(record.settings)
        if record.output_size != size:
            raise cannot_resume(self.output.path, "it has changed since the run ended")
        with contextlib.suppress(UsageError):
            self._remove_earlier()
        return record

    def _has_output(self, record: RunRecord) -> bool:
        """Whether the complete rows still exist: in the partial file, or under their name."""
        return (
            self._partial.stat().st_size == record.rows_size
            or FileVersion.of(self.output.path) != record.replaced
            or (is_remote(self.output.path) and self._target.exists())
        )

    def _check(self, complete: RunSettings) -> None:
        """Raise UsageError if a complete run had other settings or another input."""
        self.settings.check_options(complete, self.output.path)
        self.settings.check_files(complete, self.output.path)

    def _open(self) -> None:
        self.parts_path.mkdir(exist_ok=True)
        errors = self._path / "errors.jsonl"
        if self._is_sorted:
            self._files = SpooledRows(self.output, errors)
        else:
            self._files = OrderedRows(self.output, self._partial, errors)
        self._journal = (self._path / "parts.jsonl").open("ab")

    def _read_journal(self) -> None:
        """Read the records of the shards whose rows are intact, and remove all later rows."""
        recorded = list(_records(self._path / "parts.jsonl"))
        parts = (part for _, part in recorded)
        self.parts = intact_parts(self.files.rows, self.files.errors, parts)
        self.rows_size = sum(part.rows for part in self.parts)
        self._errors_size = sum(part.errors for part in self.parts)
        self.files.truncate(self.rows_size, self._errors_size)
        self.journal.truncate(sum(len(line) for line, _ in recorded[: len(self.parts)]))

    # --- rows ----------------------------------------------------------------------------------

    @property
    def parts_path(self) -> Path:
        """The folder of the part files."""
        return self._path / self._parts_name

    @property
    def partial(self) -> str:
        """The partial file, which contains the scored rows."""
        return str(self._partial)

    def parts_folder(self, *, remote: bool) -> str:
        """Return the folder of the part files; with `remote`, one that other machines can use.

        That of an output in an object store is beside the object.
        """
        if remote and is_remote(self.output.path):
            return join(with_suffix(self.output.path, ".run"), self._parts_name)
        return str(self.parts_path)

    def take_parts(self) -> list[Part]:
        """Return the records of the shards whose rows an earlier run has written."""
        parts, self.parts = self.parts, []
        return parts

    @property
    def files(self) -> RowFiles:
        """The files of scored rows and error records."""
        if self._files is None:
            raise ValueError("the run has not begun")
        return self._files

    @property
    def journal(self) -> IO[bytes]:
        """The file of the records."""
        if self._journal is None:
            raise ValueError("the run has not begun")
        return self._journal

    def scored_rows(self) -> Iterator[bytes]:
        """Yield the scored rows so far in blocks that end with a row."""
        with self.files.rows.open("rb") as handle:
            while lines := handle.readlines(_BLOCK):
                yield b"".join(lines)

    def add(self, part: Part) -> None:
        """Record a shard whose rows and errors have been written to the files."""
        self.files.flush()
        self.journal.write(msgspec.json.encode(part) + b"\n")
        self.journal.flush()
        self.rows_size += part.rows
        self._errors_size += part.errors
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self._sync()

    def _sync(self) -> None:
        self.files.flush(sync=True)
        flush_files([self.journal], sync=True)
        self._synced = time.monotonic()

    # --- end -----------------------------------------------------------------------------------

    def finish(self, totals: Totals, stream: tuple[int, int]) -> None:
        """Give the complete files their names and remove the folder."""
        self._is_finished = True
        self._sync()
        self.files.write_in_order()
        flush_files([self.output.handle], sync=True)
        self._close_files()
        record = RunRecord(
            settings=self.settings,
            totals=totals,
            rows_size=self.rows_size,
            errors_size=self._errors_size,
            stream=stream,
            replaced=FileVersion.of(self.output.path),
        )
        write_file(self._path / "finished.json", msgspec.json.encode(record))
        self._publish(record)

    def _publish(self, record: RunRecord) -> RunRecord:
        """Rename the files of a complete run: errors, output, record. Continues a broken call.

        Without `resume`, the record of an earlier run is removed.
        """
        errors = self._path / "errors.jsonl"
        if record.errors_size == 0:
            _remove(self._errors_target)
        elif errors.exists():
            _move(errors, self._errors_target)
        if self._partial.stat().st_size == record.rows_size:
            self.output.commit()
        self.output.upload()  # an earlier run may have failed to do this
        record = msgspec.structs.replace(record, output_size=self.output.complete_size() or 0)
        if self._leaves_record:
            new_record = self._path / "record.json"
            write_file(new_record, msgspec.json.encode(record))
            new_record.replace(self._record_path)
        else:
            self._record_path.unlink(missing_ok=True)
        # Without the settings, no later run takes the rest of the folder for an interrupted run.
        (self._path / "settings.json").unlink(missing_ok=True)
        shutil.rmtree(self._path, ignore_errors=True)
        remove_folder(with_suffix(self.output.path, ".run"))
        sync_folder(self._target.parent)
        return record

    def close(self) -> None:
        """Close the files. The folder remains for another run, unless nothing was scored."""
        if not self.has_begun or self.output.is_committed:
            return
        with contextlib.suppress(OSError):
            if not self._is_finished:
                self.files.write_in_order()  # what was scored so far
        self._close_files()
        if not self.rows_size + self._errors_size and not any(self.parts_path.glob("*.json")):
            shutil.rmtree(self._path, ignore_errors=True)

    def _close_files(self) -> None:
        self.files.close()
        with contextlib.suppress(OSError):
            self.journal.close()


def finished_record_of(target: Path) -> Path:
    """Return the record of the complete run that wrote an output."""
    return target.with_name(target.name + ".run.json")


def _remove(path: str) -> None:
    """Remove the errors of an earlier run. A folder or a device of this name remains."""
    file = local_path(path)
    if is_remote(path) or os.path.isfile(file) or os.path.islink(file):
        remove_file(path)


def _move(source: Path, path: str) -> None:
    """Rename a file, also to another file system."""
    if not is_remote(path):
        try:
            source.replace(local_path(path))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            return
    upload(source, path)
    source.unlink()


def _records(path: Path) -> Iterator[tuple[bytes, Part]]:
    """Yield the intact lines of the journal with their records."""
    with path.open("rb") as handle:
        for line in handle:
            try:
                part = msgspec.json.decode(line, type=Part)
            except NOT_JSON:
                return
            if not line.endswith(b"\n"):
                return
            yield line, part


def _decoded(path: Path, type_: type[T]) -> T | None:
    """Return the content of a JSON file, or None if it does not exist."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=type_)
    except FileNotFoundError:
        return None
    except NOT_JSON as error:
        raise cannot_resume(path, f"it cannot be read ({error})") from None
