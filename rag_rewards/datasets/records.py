"""The records of a data set's file: JSON lines, a JSON array or object, or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from rag_rewards.datasets.gold import Problem
from rag_rewards.datasets.json_array import (
    CutOffError,
    read_array,
    starts_array,
    text_or_problem,
)
from rag_rewards.errors import UsageError
from rag_rewards.files.compression import DamagedError, content_of, peek
from rag_rewards.files.lines import numbered_lines, skip_to_lines
from rag_rewards.files.parquet import parquet_lines
from rag_rewards.files.version import unchanged

Record = tuple[int, Any]
"""The number of a line or of an element, from 1, and its value."""

_POINTER = "version https://git-lfs"


class Records:
    """Iterate over the records of a file, as often as needed.

    A line that is not JSON is a Problem. UsageError for a file that cannot be read, that is not in
    one of the formats, that is cut off, or that another process changes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        file = Path(path)
        if path == "-" or (file.exists() and not file.is_file()):
            raise UsageError(
                f"{path} is not a regular file: choose a regular file, because it is read twice"
            )
        try:
            self._raw: IO[bytes] = file.open("rb")
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        self.size = file.stat().st_size
        self._check = unchanged(self._raw, path)

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def position(self) -> int:
        """Return the number of bytes read so far, for a progress bar."""
        return self._raw.tell()

    def __iter__(self) -> Iterator[Record]:
        try:
            yield from self._all()
        except UsageError:
            self._check()  # the reason of the error, if another process changes the file
            raise
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror or error}") from None
        self._check()

    def _all(self) -> Iterator[Record]:
        if self.path.endswith(".parquet"):
            self._raw.seek(0)
            for number, line in parquet_lines(self._raw, self.path, check=self._check):
                yield number, json.loads(line)
            return
        try:
            yield from self._records(self._content())
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{self.path} is not UTF-8 text ({error.reason}): convert it to UTF-8"
            ) from None
        except CutOffError as error:
            raise self._cut_off(error.count) from None
        except DamagedError as error:
            raise UsageError(f"{self.path} {error}; download it again") from None

    def _content(self) -> IO[bytes]:
        """Open the decompressed content at its start."""
        return content_of(self._raw)

    def _records(self, handle: IO[bytes]) -> Iterator[Record]:
        start = peek(handle).decode("utf-8-sig", "ignore").lstrip()
        if not start:
            raise UsageError(f"{self.path} is empty")
        if start.startswith("<"):
            raise UsageError(f"{self.path} is a web page: download the data file itself")
        if start.startswith(_POINTER):
            raise UsageError(
                f"{self.path} is a Git LFS pointer: run `git lfs pull` to get the file"
            )
        if starts_array(start):
            return enumerate(read_array(self._content, self.path, start), start=1)
        skip_to_lines(handle, self.path)
        return self._lines(handle)

    def _lines(self, handle: IO[bytes]) -> Iterator[Record]:
        number, line = 0, b""
        fault: tuple[int, Problem] | None = None
        for number, line in numbered_lines(handle, self.path, check=self._check):
            if fault is not None:
                yield fault
                fault = None
            try:
                yield number, _decoded(line)
            except (ValueError, RecursionError) as error:
                fault = number, Problem("not JSON", str(error))
        if fault is None:
            return
        if line.startswith(b"{") and not line.endswith(b"\n"):
            raise self._cut_off(number - 1)
        if number == 1:
            raise UsageError(
                f"{self.path} is neither JSON lines, a JSON array nor Parquet "
                f"({fault[1].detail}): choose the file of a data set"
            )
        yield fault

    def _cut_off(self, rows: int) -> UsageError:
        return UsageError(
            f"{self.path} is incomplete: it ends after {rows:,} complete rows and {self.size:,} "
            "bytes. Download it again"
        )


def _decoded(line: bytes) -> Any:
    """The record of a line. Python's json reads NaN, which msgspec refuses."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError):
        return text_or_problem(json.loads(line))
