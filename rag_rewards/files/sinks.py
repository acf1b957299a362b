"""Files of a run besides its output: rows in error, and temporary files that restore the order."""

from __future__ import annotations

import contextlib
import re
import struct
import sys
import tempfile
from array import array
from collections.abc import Container, Iterator
from pathlib import Path
from typing import IO

from rag_rewards.errors import UsageError, cannot_resume
from rag_rewards.files.output import Output

_ENTRY = struct.Struct("<qq")
_CONTROLS = re.compile("[\x7f-\x9f]")


def _escaped(match: re.Match[str]) -> str:
    """Escape a control character that JSON permits and that a terminal would execute."""
    return f"\\u{ord(match[0]):04x}"


class ErrorFile:
    """Write the records of rows in error to `path`, or to standard error without a path.

    The file is created for the first record. A file of an earlier run is removed.
    """

    def __init__(self, path: str | None) -> None:
        self.path = Path(path) if path else None
        self._handle: IO[bytes] | None = None
        if self.path and (self.path.is_file() or _is_broken_link(self.path)):
            self.path.unlink()

    def write(self, record: bytes) -> None:
        if self._handle is None:
            self._handle = self.path.open("wb") if self.path else sys.stderr.buffer
        if self.path is None:
            record = _CONTROLS.sub(_escaped, record.decode()).encode()
        self._handle.write(record)
        if self.path is None:
            self._handle.flush()

    def close(self) -> None:
        if self._handle is not None and self.path:
            self._handle.close()


def _is_broken_link(path: Path) -> bool:
    """Return whether a path is a symbolic link to no file, through which one would be created."""
    return path.is_symlink() and not path.exists()


def temporary_file_error(error: OSError) -> UsageError:
    """Return the error for a temporary file that cannot be written."""
    return UsageError(
        f"cannot write a temporary file in {tempfile.gettempdir()} ({error.strerror}): set TMPDIR "
        "to a folder with more space"
    )


class Spool:
    """A file of numbered lines, which are added in any order and read in order.

    Without a path, it is a temporary file. With a path, a spool of an earlier process continues;
    `path.index` has the number and the length of each line.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._index: IO[bytes] | None = None
        self._numbers, self._starts, self._lengths = array("q"), array("q"), array("q")
        self._end = 0
        if path is None:
            self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this)
        else:
            self._file = path.open("a+b")
            self._index = path.with_name(f"{path.name}.index").open("a+b")

    @property
    def files(self) -> list[IO[bytes]]:
        """The open files."""
        return [self._file] if self._index is None else [self._file, self._index]

    def add(self, number: int, line: bytes) -> None:
        try:
            self._file.write(line)
        except OSError as error:
            raise self._error(error) from None
        if self._index is not None:
            self._index.write(_ENTRY.pack(number, len(line)))
        self._remember(number, len(line))

    def _error(self, error: OSError) -> Exception:
        """Return the error for a file that cannot be written."""
        return temporary_file_error(error) if self._index is None else error

    def _remember(self, number: int, length: int) -> None:
        self._numbers.append(number)
        self._starts.append(self._end)
        self._lengths.append(length)
        self._end += length

    def truncate(self, size: int) -> None:
        """Keep the first lines of an earlier process, `size` bytes in all. Remove the others."""
        if self._index is None:
            return
        self._index.seek(0)
        while self._end < size and len(entry := self._index.read(_ENTRY.size)) == _ENTRY.size:
            self._remember(*_ENTRY.unpack(entry))
        self._index.truncate(len(self._numbers) * _ENTRY.size)
        self._file.truncate(size)
        if self._end != size:
            raise cannot_resume(self._file.name, "the index of its sorted rows is damaged")

    def lines(self, numbers: Container[int] | None = None) -> Iterator[bytes]:
        """Yield the lines in the order of their numbers, or only those with these numbers."""
        for i in sorted(range(len(self._numbers)), key=self._numbers.__getitem__):
            if numbers is not None and self._numbers[i] not in numbers:
                continue
            try:
                self._file.seek(self._starts[i])  # writes what is in the buffer
                line = self._file.read(self._lengths[i])
            except OSError as error:
                raise self._error(error) from None
            yield line
        self.close()

    def close(self) -> None:
        """Close the files. An error of writing was raised before, where the lines matter."""
        for file in self.files:
            with contextlib.suppress(OSError):
                file.close()


def open_output(path: str, *, resume: bool = False) -> Output:
    """Open an output for scored rows: Parquet when the name ends in `.parquet`, else JSON lines."""
    if path.endswith(".parquet"):
        from rag_rewards.files.parquet import ParquetOutput

        return ParquetOutput(path, resume=resume)
    return Output(path, resume=resume)
