"""Files of a command besides its output: rows in error, and lines in a temporary file."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from array import array
from collections.abc import Container, Iterator
from pathlib import Path
from typing import IO

from rag_rewards.errors import UsageError
from rag_rewards.files.output import Output

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
    """A temporary file of numbered lines, which are added in any order and read in order."""

    def __init__(self) -> None:
        self._numbers, self._ends = array("q"), array("q", [0])
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this)

    def add(self, number: int, line: bytes) -> None:
        try:
            self._file.write(line)
        except OSError as error:
            raise temporary_file_error(error) from None
        self._numbers.append(number)
        self._ends.append(self._ends[-1] + len(line))

    def lines(self, numbers: Container[int]) -> Iterator[bytes]:
        """Yield the lines with these numbers in their order."""
        for i in sorted(range(len(self._numbers)), key=self._numbers.__getitem__):
            if self._numbers[i] not in numbers:
                continue
            start, end = self._ends[i : i + 2]
            try:
                self._file.seek(start)  # writes what is in the buffer
                line = self._file.read(end - start)
            except OSError as error:
                raise temporary_file_error(error) from None
            yield line

    def close(self) -> None:
        """Close the file. An error of writing was raised before, where the lines matter."""
        with contextlib.suppress(OSError):
            self._file.close()


def open_output(path: str, *, resume: bool = False) -> Output:
    """Open an output for scored rows: Parquet when the name ends in `.parquet`, else JSON lines."""
    if path.endswith(".parquet"):
        from rag_rewards.files.parquet import ParquetOutput

        return ParquetOutput(path, resume=resume)
    return Output(path, resume=resume)
