"""The version of a file: its size, the time of its last change, and the digest of its content."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rag_rewards.errors import UsageError
from rag_rewards.files.remote_files import file_system, remote_errors
from rag_rewards.files.storage import is_remote, local_path, open_file

log = logging.getLogger("rag_rewards")


@dataclass(frozen=True)
class FileVersion:
    """The size of a file in bytes, and the time of its last change in nanoseconds."""

    size: int
    modified: int

    @classmethod
    def of(cls, path: str) -> FileVersion | None:
        """Return the version of the file at a path or URL, or None if there is no file."""
        if not is_remote(path):
            try:
                status = os.stat(local_path(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
            return cls(status.st_size, status.st_mtime_ns)
        files, key = file_system(path)
        with remote_errors(path):
            info = files.get_file_info(key)
        return cls(info.size, info.mtime_ns or 0) if info.is_file else None

    @classmethod
    def of_open(cls, handle: IO[bytes]) -> FileVersion | None:
        """Return the version of an open file, or None for a pipe, a device or a remote file."""
        try:
            status = os.fstat(handle.fileno())
        except (OSError, ValueError):  # a file in memory has no number
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return cls(status.st_size, status.st_mtime_ns)


def unchanged(handle: IO[bytes], path: str, *, growing: bool = False) -> Callable[[], None]:
    """Return a function that raises UsageError once an open file has changed.

    `path` is the file's name in messages. With `growing`, a file may become longer, which is logged
    once.
    """
    before = FileVersion.of_open(handle)
    has_grown = False

    def check() -> None:
        nonlocal has_grown
        now = FileVersion.of_open(handle)
        if now == before or now is None or before is None:
            return
        if growing and now.size > before.size:
            if not has_grown:
                log.warning("%s grows while it is read: later rows may be left out", path)
            has_grown = True
            return
        raise _changed(path, before, now)

    return check


def _changed(path: str, before: FileVersion, now: FileVersion) -> UsageError:
    """Return the error of a file that changed."""
    if now.size == before.size:
        how = "was written again"
    else:
        how = f"{'grew' if now.size > before.size else 'shrank'} from {before.size:,} to "
        how += f"{now.size:,} bytes"
    return UsageError(
        f"{path} {how} while it was read: wait until the file is complete, and run the command "
        "again"
    )


def sha256(path: str | Path) -> str:
    """Return the SHA-256 digest of a file in hexadecimal.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file: sha256(file.name)[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    with open_file(str(path)) as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
