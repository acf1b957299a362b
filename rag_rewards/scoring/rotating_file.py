"""A file of lines that several processes can write next to each other, in parts of bounded size."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from logging import LogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from rag_rewards.files.lock import try_lock
from rag_rewards.scoring.run_id import is_ray_process, rank

MAX_NAMES = 100
"""Names to try before a process has no file of its own."""


class RotatingLines(RotatingFileHandler):
    """Appends lines to `rollouts.jsonl`. When it is full, it becomes `rollouts.1.jsonl`, and so on.

    path       file of a single process; each further process has a name of its own, such as
               `rollouts.rank1.jsonl` or `rollouts.RUN-HOST-PID.jsonl`
    max_bytes  size at which a new file begins
    max_files  number of files of a process; the oldest one is removed
    run_id     identifier of the run, which is part of the latter name

    The message of a record is whole lines as bytes, which a reader can see after `emit`. A file
    that an earlier run wrote is kept as `rollouts.1.jsonl`. A lock on the open file keeps two
    processes from writing the same one.
    """

    terminator: Any = b""

    def __init__(self, path: Path, max_bytes: int, max_files: int, run_id: str) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=max(max_files - 1, 1), delay=True)
        self.run_id = run_id
        self.namer = _numbered
        if max_files == 1:
            self.rotator = lambda source, _: os.remove(source)
        self._path = path
        self._has_name = False

    def close(self) -> None:
        """Keep the file open: `logging.config` closes all handlers, also in the middle of a run."""

    def format(self, record: LogRecord) -> Any:
        """Return the lines of a record."""
        return record.msg

    def shouldRollover(self, record: LogRecord) -> int:
        """Return whether the file is full. A file that was removed or replaced is opened again."""
        lines: Any = self.stream
        if lines is not None and not lines.is_at(self.baseFilename):
            lines.close()
            lines = self.stream = None
        if lines is None or not lines.size:
            return False
        return bool(lines.size + len(self.format(record)) > self.maxBytes)

    def _open(self) -> Any:
        """Open the first name that no other process uses. Raises OSError if there is none."""
        if not self._has_name:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        for path in self._names():
            lines = _Lines(path)
            if lines.is_locked and lines.size:  # it was written by an earlier run
                self.baseFilename = str(path)
                self.doRollover()
                lines.close()
                lines = _Lines(path)
            if lines.is_locked:
                self.baseFilename, self._has_name = str(path), True
                return lines
            lines.close()
        raise OSError(f"{MAX_NAMES} processes write {self._path}")

    def _names(self) -> Iterator[Path]:
        if self._has_name:
            yield Path(self.baseFilename)
        own = f"{self.run_id}-{socket.gethostname()}-{os.getpid()}"
        if (number := rank()) is not None:
            yield _tagged(self._path, f"rank{number}")
        elif not is_ray_process():
            yield self._path
        for number in range(1, MAX_NAMES):
            yield _tagged(self._path, own if number == 1 else f"{own}-{number}")


class _Lines:
    """An open file of whole lines, which this process has locked unless another one has."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(path, flags, 0o666)
        self.size = os.fstat(self._descriptor).st_size
        self.is_locked = try_lock(self._descriptor)

    def write(self, lines: bytes) -> None:
        """Append lines. Raises OSError if they cannot be written: then the file is unchanged."""
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(lines)

    def is_at(self, path: str) -> bool:
        """Return whether the path is still that of this file."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(path))
        except OSError:
            return False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def check_path(path: Path) -> str:
    """Return why lines cannot be written to a path; "" if they can, as far as is known."""
    if path.suffix not in (".jsonl", ".json", ".ndjson"):
        return f"{path} must end in .jsonl"
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode):
            return f"{path} is not a regular file"
    return ""


def _numbered(name: str) -> str:
    """Return the name of an earlier file.

    >>> _numbered("rollouts.jsonl.1")
    'rollouts.1.jsonl'
    """
    path, _, number = name.rpartition(".")
    return str(_tagged(Path(path), number))


def _tagged(path: Path, tag: str) -> Path:
    return path.with_name(f"{path.stem}.{tag}{path.suffix}")
