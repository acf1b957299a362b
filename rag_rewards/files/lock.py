"""Locks of files. The operating system holds them, so that a killed process leaves none behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from rag_rewards.errors import UsageError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


def try_lock(file: IO[bytes] | int) -> bool:
    """Lock an open file or descriptor until it is closed. Return False if it is already locked.

    Windows and file systems without locks do not detect a second lock.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # this file system has no locks
        return True
    return True


def open_locked(path: Path, *, truncate: bool = True) -> IO[bytes]:
    """Open a file for writing, empty it, and lock it until it is closed.

    Raises UsageError when another run holds the lock, and for a symbolic link, which would redirect
    the rows.
    """
    while True:
        if path.is_symlink():
            raise UsageError(f"{path} is a symbolic link: remove it")
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        handle = os.fdopen(os.open(path, flags, 0o666), "wb")
        try:
            lock(handle, path)
            # The run that held the lock may have renamed the file after it was opened here.
            if _is_named(handle, path):
                if truncate:
                    handle.truncate()
                return handle
        except BaseException:
            handle.close()
            raise
        handle.close()


def lock(handle: IO[bytes], path: Path) -> None:
    """Lock an open file until it is closed. Raises UsageError when another run holds the lock."""
    if not try_lock(handle):
        raise UsageError(
            f"another run is writing {path}: wait until it ends, or choose another output file"
        )


def _is_named(handle: IO[bytes], path: Path) -> bool:
    """Return whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.lstat())
    except FileNotFoundError:
        return False
