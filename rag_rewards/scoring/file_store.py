"""The store of a run whose output `OUT` is one file. Its files are in the folder `OUT.run`.

    journal.jsonl  the journal
    parts-ID/      the part files of shards that are complete before an earlier one
    errors.jsonl   the error records of the shards whose rows are in OUT.partial
    input.jsonl    a copy of an input that only one reader can read
    rows.jsonl     the scored rows in the order of the copy, if its groups are sorted

`OUT.partial` contains the rows of the first shards, and its lock protects the folder. Workers of an
earlier run that end a moment later write to the folder of its part files, which has another name.

A run with `resume` leaves its record beside the output as OUT.run.json, so that the same command
can be repeated and finds a complete output. Other runs leave no record.
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
from typing import IO

import msgspec

from rag_rewards.errors import UsageError, cannot_resume
from rag_rewards.files.atomic import sync_folder, upload, write_file
from rag_rewards.files.output import Output
from rag_rewards.files.storage import (
    is_remote,
    join,
    local_path,
    open_file,
    remove_file,
    remove_folder,
    with_suffix,
)
from rag_rewards.files.version import FileVersion
from rag_rewards.rows import Totals
from rag_rewards.scoring.line_order import write_in_order
from rag_rewards.scoring.options import OutputError
from rag_rewards.scoring.run_settings import RunSettings
from rag_rewards.scoring.shard import Part, ShardJob, matches, part_files, remove_part
from rag_rewards.scoring.spool import Fingerprint
from rag_rewards.scoring.store import (
    JOURNAL,
    SYNC_SECONDS,
    RunRecord,
    RunState,
    RunStore,
    decoded_file,
)
from rag_rewards.scoring.stream import open_output

_BLOCK = 1 << 20
_NAMES = ("journal", "parts-", "errors", "input", "rows", "record")
"""The beginnings of the names in the folder. Incomplete files have a dot before them."""


class FileStore(RunStore):
    """The store of an output that is one file, which another run cannot write until `close`.

    written  number of shards whose rows are in the files to which rows are appended
    """

    def __init__(
        self, output: str, errors: str, settings: RunSettings, *, is_sorted: bool = False
    ) -> None:
        self.output: Output = open_output(output, resume=True)
        if self.output.partial is None or self.output.target is None:
            raise UsageError(f"{output} is not a regular file: write to a regular file")
        self._target, self._partial = self.output.target, self.output.partial
        self.path = _folder_of(self._target)
        super().__init__(output, settings, str(self.path / JOURNAL))
        self._errors_target = errors
        self._record_path = self._target.with_name(self._target.name + ".run.json")
        self._rows_path = self.path / "rows.jsonl" if is_sorted else self._partial
        self._errors_path = self.path / "errors.jsonl"
        self._ordered_errors = self.path / "errors.sorted.jsonl" if is_sorted else self._errors_path
        self._is_sorted = is_sorted
        self._parts_folder: Path | None = None
        """The folder of the part files, once the run has begun."""
        self._files: tuple[IO[bytes], ...] = ()
        """The open files of rows and of errors."""
        self._sizes = [0, 0]
        self._direct = -1
        """The last shard that this process has written to these files itself."""
        self.written = 0
        self._appended = 0
        """Number of shards for which `append` was called."""
        self._leaves_record = False

    # --- start ---------------------------------------------------------------------------------

    def begin(self, shard_bytes: int) -> RunState:
        self.journal.close()
        remove_earlier_run(self._target)
        self.output.truncate(0)
        self.path.mkdir()
        state = RunState(
            settings=self.settings,
            shard_bytes=shard_bytes,
            parts=f"parts-{secrets.token_hex(4)}",
        )
        self._parts_folder = self.path / state.parts
        self.journal.start(state)
        self._open(self._parts_folder)
        return state

    def resume(self) -> RunState | RunRecord | None:
        self._leaves_record = True
        entries = self.journal.read()
        if entries is None:
            return self._complete_output()
        state, records = entries
        self.settings.check(state.settings, self.name)
        if records and isinstance(records[-1], RunRecord):
            return self._publish(records[-1]) if self._has_output(records[-1]) else None
        self._parts = {each.shard.index: each for each in records if isinstance(each, Part)}
        self._parts_folder = self.path / state.parts
        self._open(self._parts_folder)
        self._keep_intact_rows()
        return state

    def _complete_output(self) -> RunRecord | None:
        """Return the record of the complete output, or None without an output."""
        version = FileVersion.of(self.name)
        if version is None:
            return None
        try:
            record = decoded_file(str(self._record_path), RunRecord)
        except UsageError as error:
            raise cannot_resume(self.name, str(error)) from None
        if record is None:
            raise cannot_resume(
                self.name,
                f"it exists without {self._record_path.name}, which a run with resume leaves",
            )
        self.settings.check(record.settings, self.name)
        if record.output_size != version.size:
            raise cannot_resume(self.name, "it has changed since the run ended")
        with contextlib.suppress(UsageError):
            remove_earlier_run(self._target)
        return record

    def _has_output(self, record: RunRecord) -> bool:
        """Whether the complete rows still exist: in the partial file, or under their name."""
        return (
            self._partial.stat().st_size == record.rows_size
            or FileVersion.of(self.name) != record.replaced
            or (is_remote(self.name) and self._target.exists())
        )

    def _open(self, parts_folder: Path) -> None:
        parts_folder.mkdir(exist_ok=True)
        rows = self.output.handle
        if self._is_sorted:
            rows = _open_to_change(self._rows_path)
        self._files = (rows, _open_to_change(self._errors_path))

    def _keep_intact_rows(self) -> None:
        """Find the shards whose rows are at the start of the files, and remove all other rows."""
        with self._rows_path.open("rb") as rows, self._errors_path.open("rb") as errors:
            while (
                (part := self._parts.get(self.written)) is not None
                and matches(rows, part.rows, part.rows_checksum)
                and matches(errors, part.errors, part.errors_checksum)
            ):
                self._count(part)
        for handle, size in zip(self._files, self._sizes, strict=True):
            handle.seek(size)
            handle.truncate()

    def parts_folder(self, *, remote: bool) -> str:
        if self._parts_folder is None:
            raise ValueError("the run has not begun")
        if remote and is_remote(self.name):
            return join(with_suffix(self.name, ".run"), self._parts_folder.name)
        return str(self._parts_folder)

    # --- shards --------------------------------------------------------------------------------

    def _has_rows(self, job: ShardJob, part: Part) -> bool:
        return part.shard.index < self.written or super()._has_rows(job, part)

    @contextlib.contextmanager
    def writing(self, job: ShardJob, index: int) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        if not index == self.written == self._appended:  # complete shards before it come first
            with part_files(job, index) as files:
                yield files
            return
        self._direct = index
        rows, errors = self._files
        yield rows, errors

    def record(self, part: Part) -> None:
        if part.shard.index == self._direct:
            self._flush()
        super().record(part)
        if part.shard.index == self._direct:
            self._count(part)

    def append(self, job: ShardJob, part: Part) -> None:
        index = part.shard.index
        self._appended += 1
        if index < self.written or index == self._direct:
            return
        rows, errors = self._files
        _copy(job.rows_path(index), rows, part.rows)
        if part.errors:
            _copy(job.errors_path(index), errors, part.errors)
        if not part.stopped_by:
            self._flush()
            self._count(part)
            remove_part(job, part)

    def _count(self, part: Part) -> None:
        self.written += 1
        self._sizes = [self._sizes[0] + part.rows, self._sizes[1] + part.errors]
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self._sync()

    def _flush(self) -> None:
        for handle in self._files:
            handle.flush()

    def _sync(self) -> None:
        self._flush()
        for handle in self._files:
            os.fsync(handle.fileno())
        self.journal.sync()
        self._synced = time.monotonic()

    # --- end -----------------------------------------------------------------------------------

    def stop(self) -> str:
        self._restore_order()
        self._flush()
        return str(self._partial)

    def _restore_order(self) -> None:
        """Write the rows and the errors in the order of their lines, if they have another one."""
        if not self._is_sorted:
            return
        self._flush()
        self.output.truncate(0)
        with self._ordered_errors.open("wb") as errors:
            write_in_order(
                (self._rows_path, self._errors_path),
                self.path / "input.numbers",
                (self.output.handle, errors),
            )
            for handle in (self.output.handle, errors):
                handle.flush()
                os.fsync(handle.fileno())

    def finish(self, totals: Totals, fingerprint: Fingerprint) -> None:
        self._restore_order()
        self._sync()
        record = RunRecord(
            settings=self.settings,
            totals=totals,
            rows_size=self._sizes[0],
            errors_size=self._sizes[1],
            input=fingerprint,
            replaced=FileVersion.of(self.name),
        )
        self.journal.add(record)
        self.journal.sync()
        self._publish(record)

    def _publish(self, record: RunRecord) -> RunRecord:
        """Rename the files of a complete run: errors, output, record. Continues a broken call.

        Without `resume`, the record of an earlier run is removed.
        """
        if record.errors_size == 0:
            remove_errors(self._errors_target)
        elif self._ordered_errors.exists():
            _move(self._ordered_errors, self._errors_target)
        if self._partial.stat().st_size == record.rows_size:
            self.output.commit()
        self.output.upload()  # an earlier run may have failed to do this
        if (version := FileVersion.of(self.name)) is not None:
            record = msgspec.structs.replace(record, output_size=version.size)
        if self._leaves_record:
            new_record = self.path / "record.json"
            write_file(str(new_record), msgspec.json.encode(record))
            new_record.replace(self._record_path)
        else:
            self._record_path.unlink(missing_ok=True)
        # By the journal, which is removed last, a later run knows that the output is complete.
        for entry in list(self.path.iterdir()):
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != JOURNAL:
                entry.unlink(missing_ok=True)
        self.journal.remove()
        shutil.rmtree(self.path, ignore_errors=True)
        remove_folder(with_suffix(self.name, ".run"))
        sync_folder(self._target.parent)
        return record

    def close(self) -> None:
        is_complete = self.output.partial is None
        files: list[Output | IO[bytes]] = [self.output, *self._files]
        for file in files:
            with contextlib.suppress(OSError):  # errors of writing were raised before
                file.close()
        self.journal.close()
        if is_complete or self._parts_folder is None:
            return
        for name in ("input.jsonl", "input.numbers"):
            (self.path / name).unlink(missing_ok=True)
        if not any(self._sizes) and not any(self._parts_folder.glob("part-*")):
            shutil.rmtree(self.path, ignore_errors=True)


def _open_to_change(path: Path) -> IO[bytes]:
    """Open a file for writing without removing its content."""
    path.touch()
    return path.open("r+b")


def _folder_of(target: Path) -> Path:
    """Return the folder of the run that writes an output."""
    return target.with_name(target.name + ".run")


def remove_earlier_run(target: Path) -> None:
    """Remove the folder of an earlier run. Raises UsageError if it contains other files."""
    path = _folder_of(target)
    is_folder = path.is_dir() and not path.is_symlink()
    names = os.listdir(path) if is_folder else [""] * os.path.lexists(path)
    if other := [name for name in names if not name.lstrip(".").startswith(_NAMES)]:
        raise UsageError(
            f"{path / other[0]} is not a file of a run: rename {path}, or choose another output"
        )
    if is_folder:
        # Without the journal, no later run takes the partial file for that of its run.
        (path / JOURNAL).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)


def remove_errors(path: str) -> None:
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


def _copy(source: str, target: IO[bytes], size: int) -> None:
    """Append a file of `size` bytes."""
    with open_file(source) as handle:
        shutil.copyfileobj(handle, target, _BLOCK)
        if handle.tell() != size:
            raise OutputError(f"cannot write {target.name}: {source} has not {size:,} bytes")
