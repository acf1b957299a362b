"""The folder of an output that consists of part files.

part-00000.jsonl         the scored rows of the first shard
part-00000.errors.jsonl  its error records, if there are any
manifest.json            the parts in order; written last, when all parts are complete
_run/                    what an interrupted run needs to continue: settings.json, a lock, and
                         a record of each complete part
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Container
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from rag_rewards.errors import UsageError, cannot_resume
from rag_rewards.files.atomic import sync_folder, write_file
from rag_rewards.files.lock import open_locked
from rag_rewards.files.storage import (
    base_name,
    is_remote,
    join,
    local_path,
    names_in,
    read_file,
    remove_file,
    remove_folder,
    staging_folder,
)
from rag_rewards.files.version import FileVersion
from rag_rewards.rows import Totals
from rag_rewards.rows.decoding import NOT_JSON
from rag_rewards.scoring.run_settings import RunSettings
from rag_rewards.scoring.score import Part, PartFiles, ShardJob

MANIFEST = "manifest.json"
_RUN, _SETTINGS = "_run", "settings.json"
_PART = re.compile(r"part-\d{5}(\.errors)?\.jsonl")
_INCOMPLETE = re.compile(rf"\.{_PART.pattern}\..*")
"""Part files of processes that were killed."""
_OWN = re.compile(rf"{_PART.pattern}|{re.escape(MANIFEST)}|[._].*")
"""The names that the folder may contain. Those with a dot or an underscore are not rows."""
T = TypeVar("T")


class ManifestPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the output. Checksums are CRC-32 values; sizes are bytes.

    name        file of the scored rows
    rows, size, checksum  their number, size and checksum
    errors_name  file of the error records; None without errors
    errors, errors_size, errors_checksum  their number, size and checksum
    first_line, last_line  line numbers of the input
    """

    name: str
    rows: int
    size: int
    checksum: int
    errors_name: str | None
    errors: int
    errors_size: int
    errors_checksum: int
    first_line: int
    last_line: int

    @classmethod
    def of(cls, job: ShardJob, part: Part) -> ManifestPart:
        """Return the entry of a part."""
        files = PartFiles(job, part.index)
        pieces = part.shard.pieces if part.shard is not None else ()
        return cls(
            name=base_name(files.rows),
            rows=part.totals.rows,
            size=part.rows,
            checksum=part.rows_checksum,
            errors_name=base_name(files.errors) if part.errors else None,
            errors=part.totals.errors,
            errors_size=part.errors,
            errors_checksum=part.errors_checksum,
            first_line=pieces[0].first + 1,
            last_line=pieces[-1].first + pieces[-1].lines,
        )

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each file in bytes."""
        sizes = {self.name: self.size}
        if self.errors_name is not None:
            sizes[self.errors_name] = self.errors_size
        return sizes


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of manifest.json: signature, totals, parts in input order, and settings."""

    signature: str
    totals: Totals
    parts: list[ManifestPart]
    settings: RunSettings


class _RunState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of settings.json. `records` is the name of the folder of the records."""

    settings: RunSettings
    shard_bytes: int
    records: str


class PartsFolder:
    """The folder of an output, locked until `close`.

    Raises UsageError if another run writes it, and if it contains files that are not of a run.
    """

    def __init__(self, path: str, settings: RunSettings) -> None:
        self.path = path if is_remote(path) else os.path.abspath(local_path(path))
        self._settings = settings
        self._state: _RunState | None = None
        self._refuse_other_files()
        folder = staging_folder(self.path) if is_remote(self.path) else Path(self.path) / _RUN
        self._lock_file = folder / "lock"
        self._lock = self._locked()

    def _refuse_other_files(self) -> None:
        for file in self._settings.files:
            inside = join(self.path, base_name(file.path))
            same = os.path.realpath if not is_remote(self.path) else str
            if same(local_path(file.path)) == same(inside):
                raise UsageError(
                    f"the folder {self.path} contains the input {file.path}: choose another output"
                )
        names = names_in(self.path)
        others = [name for name in names if not _OWN.fullmatch(name)]
        is_complete = self._read(MANIFEST, Manifest) is not None
        if not is_complete and self._read(join(_RUN, _SETTINGS), _RunState) is None:
            others += [name for name in names if _PART.fullmatch(name)]
        if others:
            raise UsageError(
                f"{join(self.path, others[0])} is not a file of an earlier run: choose an empty "
                "folder, or a new one"
            )

    def _locked(self) -> IO[bytes]:
        try:
            self._lock_file.parent.mkdir(parents=True, exist_ok=True)
            return open_locked(self._lock_file)
        except OSError as error:
            raise UsageError(f"cannot write {self.path}: {error.strerror}") from None

    def close(self) -> None:
        """Release the lock. The parts remain for another run."""
        if is_remote(self.path):
            self._lock_file.unlink(missing_ok=True)
        elif not (run := Path(self.path) / _RUN).joinpath(_SETTINGS).exists():
            shutil.rmtree(run, ignore_errors=True)
            with contextlib.suppress(OSError):  # it contains files
                os.rmdir(self.path)
        self._lock.close()

    # --- start ---------------------------------------------------------------------------------

    def resume(self) -> Manifest | None:
        """Continue an earlier run, if there is one. Returns its manifest if it is complete.

        Raises UsageError if its settings or its input differ, or if its parts have changed.
        """
        if (state := self._read(join(_RUN, _SETTINGS), _RunState)) is not None:
            self._settings.check(state.settings, self.path)
            self._state = state
        manifest = self._read(MANIFEST, Manifest)
        if manifest is None:
            return None
        if self._state is not None and manifest.settings != self._settings:
            # `start` was interrupted before it removed the manifest of an earlier run.
            remove_file(join(self.path, MANIFEST))
            return None
        self._settings.check(manifest.settings, self.path)
        self._check_sizes(manifest.parts)
        self._remove_run()
        return manifest

    def start(self, shard_bytes: int) -> None:
        """Begin a new run. The files of an earlier run are removed."""
        self._state = _RunState(
            settings=self._settings,
            shard_bytes=shard_bytes,
            records=f"records-{secrets.token_hex(4)}",
        )
        # The settings show from now on that the remaining files are those of a run.
        write_file(join(self.path, join(_RUN, _SETTINGS)), msgspec.json.encode(self._state))
        remove_file(join(self.path, MANIFEST))
        self._remove_files(_PART)
        self._remove_files(_INCOMPLETE)

    @property
    def has_begun(self) -> bool:
        """Whether the settings of the run are recorded."""
        return self._state is not None

    @property
    def shard_bytes(self) -> int:
        """Size of a shard in bytes."""
        return self._current_state.shard_bytes

    @property
    def records(self) -> str:
        """The folder of the records of the parts."""
        folder = join(self.path, join(_RUN, self._current_state.records))
        if not is_remote(folder):
            os.makedirs(folder, exist_ok=True)
        return folder

    @property
    def _current_state(self) -> _RunState:
        if self._state is None:
            raise ValueError("the run has not begun")
        return self._state

    def _read(self, name: str, type_: type[T]) -> T | None:
        """Return the content of a JSON file, or None if it does not exist."""
        path = join(self.path, name)
        if FileVersion.of(path) is None:
            return None
        try:
            return msgspec.json.decode(read_file(path), type=type_)
        except NOT_JSON as error:
            raise UsageError(
                f"{path} is not the file of an earlier run ({error}): choose another folder"
            ) from None

    # --- end -----------------------------------------------------------------------------------

    def finish(self, totals: Totals, parts: list[ManifestPart]) -> None:
        """Write the manifest. Raises UsageError if a part has not the size of its record."""
        self._check_sizes(parts)
        # `start` may have been interrupted before it removed all parts of an earlier run.
        self._remove_files(_PART, keep={name for part in parts for name in part.sizes})
        if not is_remote(self.path):
            sync_folder(Path(self.path))
        manifest = Manifest(
            signature=self._settings.options["signature"],
            totals=totals,
            parts=parts,
            settings=self._settings,
        )
        write_file(join(self.path, MANIFEST), msgspec.json.encode(manifest))
        self._remove_run()

    def _remove_run(self) -> None:
        self._remove_files(_INCOMPLETE)
        remove_file(join(self.path, join(_RUN, _SETTINGS)))
        remove_folder(join(self.path, _RUN))  # `close` removes a local one, which has the lock

    def _remove_files(self, pattern: re.Pattern[str], keep: Container[str] = ()) -> None:
        for name in filter(pattern.fullmatch, names_in(self.path)):
            if name not in keep:
                remove_file(join(self.path, name))

    def _check_sizes(self, parts: list[ManifestPart]) -> None:
        for part in parts:
            for name, size in part.sizes.items():
                path = join(self.path, name)
                info = FileVersion.of(path)
                if info is None or info.size != size:
                    raise cannot_resume(self.path, f"{path} has changed since it was written")
