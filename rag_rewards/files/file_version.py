"""The version of an input file, by which a run notices that another process changes the file."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from rag_rewards.errors import UsageError

log = logging.getLogger("rag_rewards")


class ChangedInputError(UsageError):
    """An input file changed while it was read."""


@dataclass(frozen=True)
class FileVersion:
    """The size and the time of the last change of a regular file."""

    size: int
    changed_ns: int

    @classmethod
    def of(cls, handle: IO[bytes]) -> FileVersion | None:
        """Return the version of an open file, or None for a pipe or a device."""
        try:
            status = os.fstat(handle.fileno())
        except (OSError, ValueError):  # a file in memory has no number
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return cls(status.st_size, status.st_mtime_ns)


def unchanged(handle: IO[bytes], path: str, *, growing: bool = False) -> Callable[[], None]:
    """Return a function that raises ChangedInputError once an open file has changed.

    `path` is the file's name in messages. With `growing`, a file may become longer, which is logged
    once.
    """
    before = FileVersion.of(handle)
    has_grown = False

    def check() -> None:
        nonlocal has_grown
        now = FileVersion.of(handle)
        if now == before or now is None or before is None:
            return
        if growing and now.size > before.size:
            if not has_grown:
                log.warning("%s grows while it is read: later rows may be left out", path)
            has_grown = True
            return
        raise changed(path, before, now)

    return check


def changed(path: str, before: FileVersion, now: FileVersion) -> ChangedInputError:
    """Return the error of a file that changed."""
    if now.size == before.size:
        how = "was written again"
    else:
        how = f"{'grew' if now.size > before.size else 'shrank'} from {before.size:,} to "
        how += f"{now.size:,} bytes"
    return ChangedInputError(
        f"{path} {how} while it was read: wait until the file is complete, and run the command "
        "again"
    )
