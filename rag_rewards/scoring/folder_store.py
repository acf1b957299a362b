"""The store of a run whose output `OUT` is a folder of part files.

part-00000.jsonl         the scored rows of the first shard
part-00000.errors.jsonl  its error records, if there are any
manifest.json            the parts in order; written last, when all parts are complete
_run/                    the journal, a lock, and a copy of an input that only one reader can
                         read; only while a run is in progress or interrupted
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Container
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

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
    remove_file,
    remove_folder,
    staging_folder,
)
from rag_rewards.files.version import FileVersion
from rag_rewards.rows import Totals
from rag_rewards.scoring.run_settings import RunSettings
from rag_rewards.scoring.shard import Part, ShardJob, part_files
from rag_rewards.scoring.spool import NO_ROWS, Fingerprint
from rag_rewards.scoring.store import JOURNAL, RunRecord, RunState, RunStore, decoded_file

MAX_PARTS = 10_000
"""Number of parts of a folder above which they become larger."""
MANIFEST = "manifest.json"
_RUN = "_run"
_PART = re.compile(r"part-\d{5,}(\.errors)?\.jsonl")
_INCOMPLETE = re.compile(rf"\.{_PART.pattern}\..*")
"""Part files of processes that were killed."""
_OWN = re.compile(rf"{_PART.pattern}|{re.escape(MANIFEST)}|[._].*")
"""The names that the folder may contain. Those with a dot or an underscore are not rows."""


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
        first, last = part.shard.pieces[0], part.shard.pieces[-1]
        return cls(
            name=base_name(job.rows_path(part.shard.index)),
            rows=part.totals.rows,
            size=part.rows,
            checksum=part.rows_checksum,
            errors_name=base_name(job.errors_path(part.shard.index)) if part.errors else None,
            errors=part.totals.errors,
            errors_size=part.errors,
            errors_checksum=part.errors_checksum,
            first_line=first.first + 1,
            last_line=last.first + last.lines,
        )

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each file in bytes."""
        sizes = {self.name: self.size}
        if self.errors_name is not None:
            sizes[self.errors_name] = self.errors_size
        return sizes


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of manifest.json: signature, totals, parts in input order, and settings.

    `input` is the fingerprint of an input that was copied.
    """

    signature: str
    totals: Totals
    parts: list[ManifestPart]
    settings: RunSettings
    input: Fingerprint = NO_ROWS


class FolderStore(RunStore):
    """The store of an output that is a folder, which another run cannot write until `close`.

    Raises UsageError if another run writes it, and if it contains files that are not of a run.

    folder  the folder of the part files
    """

    def __init__(self, output: str, settings: RunSettings) -> None:
        self.folder = output if is_remote(output) else os.path.abspath(local_path(output))
        super().__init__(self.folder, settings, join(join(self.folder, _RUN), JOURNAL))
        self._entries: list[ManifestPart] = []
        self._refuse_other_files()
        is_local = not is_remote(self.folder)
        self.path = Path(self.folder) / _RUN if is_local else staging_folder(self.folder)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open_locked(self.path / "lock")
        except OSError as error:
            raise UsageError(f"cannot write {self.folder}: {error.strerror}") from None

    def _refuse_other_files(self) -> None:
        for file in self.settings.files:
            inside = join(self.folder, base_name(file.path))
            same = os.path.realpath if not is_remote(self.folder) else str
            if same(local_path(file.path)) == same(inside):
                raise UsageError(
                    f"the folder {self.folder} contains the input {file.path}: choose another "
                    "output"
                )
        names = names_in(self.folder)
        others = [name for name in names if not _OWN.fullmatch(name)]
        if self._manifest() is None and not self.journal.exists():
            others += [name for name in names if _PART.fullmatch(name)]
        if others:
            raise UsageError(
                f"{join(self.folder, others[0])} is not a file of an earlier run: choose an empty "
                "folder, or a new one"
            )

    def _manifest(self) -> Manifest | None:
        return decoded_file(join(self.folder, MANIFEST), Manifest)

    # --- start ---------------------------------------------------------------------------------

    def resume(self) -> RunState | RunRecord | None:
        manifest, entries = self._manifest(), self.journal.read()
        state = None
        if entries is not None:
            state, records = entries
            self.settings.check(state.settings, self.name)
            self._parts = {each.shard.index: each for each in records if isinstance(each, Part)}
        if manifest is None:
            return state
        if state is not None and manifest.settings != self.settings:
            # `begin` was interrupted before it removed the manifest of an earlier run.
            remove_file(join(self.folder, MANIFEST))
            return state
        self.settings.check(manifest.settings, self.name)
        self._check_sizes(manifest.parts)
        self._remove_run()
        return RunRecord(
            settings=manifest.settings,
            totals=manifest.totals,
            rows_size=sum(part.size for part in manifest.parts),
            errors_size=sum(part.errors_size for part in manifest.parts),
            input=manifest.input,
        )

    def begin(self, shard_bytes: int) -> RunState:
        shard_bytes = max(shard_bytes, sum(each.size for each in self.settings.files) // MAX_PARTS)
        state = RunState(settings=self.settings, shard_bytes=shard_bytes)
        self.journal.start(state)
        remove_file(join(self.folder, MANIFEST))
        self._remove_files(_PART)
        self._remove_files(_INCOMPLETE)
        return state

    def parts_folder(self, *, remote: bool) -> str:
        return self.folder

    # --- shards --------------------------------------------------------------------------------

    def writing(
        self, job: ShardJob, index: int
    ) -> AbstractContextManager[tuple[IO[bytes], IO[bytes]]]:
        return part_files(job, index)

    def append(self, job: ShardJob, part: Part) -> None:
        if not part.stopped_by:
            self._entries.append(ManifestPart.of(job, part))

    # --- end -----------------------------------------------------------------------------------

    def stop(self) -> str:
        return self.folder

    def finish(self, totals: Totals, fingerprint: Fingerprint) -> None:
        self._check_sizes(self._entries)
        # `begin` may have been interrupted before it removed all parts of an earlier run.
        self._remove_files(_PART, keep={name for part in self._entries for name in part.sizes})
        if not is_remote(self.folder):
            sync_folder(Path(self.folder))
        manifest = Manifest(
            signature=self.settings.options["signature"],
            totals=totals,
            parts=self._entries,
            settings=self.settings,
            input=fingerprint,
        )
        write_file(join(self.folder, MANIFEST), msgspec.json.encode(manifest))
        self._remove_run()

    def _remove_run(self) -> None:
        self._remove_files(_INCOMPLETE)
        self.journal.remove()
        remove_folder(join(self.folder, _RUN))  # `close` removes a local one, which has the lock

    def _remove_files(self, pattern: re.Pattern[str], keep: Container[str] = ()) -> None:
        for name in filter(pattern.fullmatch, names_in(self.folder)):
            if name not in keep:
                remove_file(join(self.folder, name))

    def _check_sizes(self, parts: list[ManifestPart]) -> None:
        for part in parts:
            for name, size in part.sizes.items():
                path = join(self.folder, name)
                info = FileVersion.of(path)
                if info is None or info.size != size:
                    raise cannot_resume(self.name, f"{path} has changed since it was written")

    def close(self) -> None:
        self.journal.close()
        for name in ("input.jsonl", *(["lock"] if is_remote(self.folder) else [])):
            (self.path / name).unlink(missing_ok=True)
        if not is_remote(self.folder) and not self.journal.exists():
            shutil.rmtree(self.path, ignore_errors=True)
            with contextlib.suppress(OSError):  # it contains files
                os.rmdir(self.folder)
        self._lock.close()
