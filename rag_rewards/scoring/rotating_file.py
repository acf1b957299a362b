"""A file of lines that several processes can write next to each other, in parts of bounded size."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from rag_rewards.scoring.run_id import is_ray_process, rank

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows)
    fcntl = None  # type: ignore[assignment]

MAX_NAMES = 100
"""Names to try before a process has no file of its own."""


class RotatingFile:
    """Appends lines to `rollouts.jsonl`. When it is full, it becomes `rollouts.1.jsonl`, and so on.

    path       file of a single process; each further process has a name of its own, such as
               `rollouts.rank1.jsonl` or `rollouts.RUN-HOST-PID.jsonl`
    max_bytes  size at which a new file begins
    max_files  number of files of a process; the oldest one is removed
    run_id     identifier of the run, which is part of the latter name

    A file that an earlier run wrote is kept as `rollouts.1.jsonl`. A lock on the open file keeps
    two processes from writing the same one.
    """

    def __init__(self, path: Path, max_bytes: int, max_files: int, run_id: str) -> None:
        self.path, self.max_bytes, self.max_files = path, max_bytes, max_files
        self.run_id = run_id
        self.current: Path | None = None
        """The file that this process writes; None before the first line."""
        self._descriptor: int | None = None
        self._size = 0

    def append(self, lines: bytes) -> None:
        """Append whole lines, which a reader can see when the call returns.

        Raises OSError when they cannot be written. The file then ends with a whole line.
        """
        if self._descriptor is None or self._is_lost():
            self.close()
            self._open()
        elif self._size and self._size + len(lines) > self.max_bytes:
            self._rotate()
        self._write(lines)

    def close(self) -> None:
        """Close the file. A later `append` opens it again."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = None

    def _write(self, lines: bytes) -> None:
        if self._descriptor is None:
            raise OSError("the file is closed")
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(lines)

    # --- opening -------------------------------------------------------------------------------

    def _is_lost(self) -> bool:
        """Return whether another program removed or replaced the open file."""
        if self._descriptor is None or self.current is None:
            return True
        try:
            return not os.path.samestat(os.fstat(self._descriptor), os.stat(self.current))
        except OSError:
            return True

    def _open(self) -> None:
        """Open the first name that no other process uses."""
        if self.current is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        for path in self._names():
            if self._try_open(path):
                return
        raise OSError(f"{MAX_NAMES} processes write {self.path}")

    def _try_open(self, path: Path) -> bool:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(path, flags, 0o666)
        if not _locked(descriptor):
            os.close(descriptor)
            return False
        self.current, self._descriptor = path, descriptor
        self._size = os.fstat(descriptor).st_size
        if self._size:
            self._rotate()
        return True

    def _rotate(self) -> None:
        """Rename the current file and the earlier ones, and begin a new one."""
        path = self.current
        if path is None:
            return
        if self.max_files == 1:
            path.unlink(missing_ok=True)
        for number in range(self.max_files - 1, 0, -1):
            source = path if number == 1 else _numbered(path, number - 1)
            with contextlib.suppress(FileNotFoundError):
                source.replace(_numbered(path, number))
        self.close()
        if not self._try_open(path):
            self._open()

    def _names(self) -> Iterator[Path]:
        if self.current is not None:
            yield self.current
        own = f"{self.run_id}-{socket.gethostname()}-{os.getpid()}"
        if (number := rank()) is not None:
            yield _tagged(self.path, f"rank{number}")
        elif not is_ray_process():
            yield self.path
        for number in range(1, MAX_NAMES):
            yield _tagged(self.path, own if number == 1 else f"{own}-{number}")


def check_path(path: Path) -> str:
    """Return why lines cannot be written to a path; "" if they can, as far as is known."""
    if path.suffix not in (".jsonl", ".json", ".ndjson"):
        return f"{path} must end in .jsonl"
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return f"{path} is not a regular file"
    except OSError:
        return ""
    return ""


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def _tagged(path: Path, tag: str) -> Path:
    return path.with_name(f"{path.stem}.{tag}{path.suffix}")


def _locked(descriptor: int) -> bool:
    """Lock an open file. Return False if another process has locked it."""
    if fcntl is None:  # pragma: no cover (Windows)
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
