"""The files to which a run appends scored rows and error records."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Protocol

from rag_rewards.files.output import Output
from rag_rewards.files.sinks import Spool
from rag_rewards.files.storage import open_file
from rag_rewards.rows import ScoredChunk
from rag_rewards.scoring.score import Part, PartFiles

_BLOCK = 1 << 20


class RowFiles(Protocol):
    """Scored rows and error records in the order in which they were scored."""

    rows: Path
    errors: Path

    def write(self, chunk: ScoredChunk) -> None: ...

    def flush(self, *, sync: bool = False) -> None:
        """Pass all data to the operating system, and with `sync` to the disk."""
        ...

    def truncate(self, rows: int, errors: int) -> None:
        """Remove what follows the first bytes of both files."""
        ...

    def write_in_order(self) -> None:
        """Write the rows to the partial file, and the errors to the file of errors."""
        ...

    def close(self) -> None: ...


class OrderedRows:
    """Rows that are scored in the order of the input: the partial file, and the file of errors."""

    def __init__(self, output: Output, partial: Path, errors: Path) -> None:
        self.rows, self.errors = partial, errors
        self.output = output
        self.error_handle: IO[bytes] = errors.open("ab")

    def write(self, chunk: ScoredChunk) -> None:
        self.output.write(chunk.output)
        self.error_handle.writelines(chunk.errors)

    def flush(self, *, sync: bool = False) -> None:
        flush_files((self.output.handle, self.error_handle), sync=sync)

    def truncate(self, rows: int, errors: int) -> None:
        self.output.truncate(rows)
        self.error_handle.truncate(errors)

    def write_in_order(self) -> None:
        self.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.error_handle.close()


class SpooledRows:
    """Rows that are scored in the order of their groups, in files with an index of their lines."""

    def __init__(self, output: Output, errors: Path) -> None:
        self.rows = errors.with_name("unsorted.jsonl")
        self.errors = errors.with_name("unsorted.errors.jsonl")
        self._output, self._errors = output, errors
        self._row_spool, self._error_spool = Spool(self.rows), Spool(self.errors)

    def write(self, chunk: ScoredChunk) -> None:
        start = 0
        for number, end in zip(chunk.numbers, chunk.ends, strict=True):
            self._row_spool.add(number, chunk.output[start:end])
            start = end
        for number, record in zip(chunk.error_numbers, chunk.errors, strict=True):
            self._error_spool.add(number, record)

    def flush(self, *, sync: bool = False) -> None:
        flush_files((*self._row_spool.files, *self._error_spool.files), sync=sync)

    def truncate(self, rows: int, errors: int) -> None:
        self._row_spool.truncate(rows)
        self._error_spool.truncate(errors)

    def write_in_order(self) -> None:
        self._output.truncate(0)
        for line in self._row_spool.lines():
            self._output.write(line)
        with self._errors.open("wb") as handle:
            handle.writelines(self._error_spool.lines())
            flush_files([handle], sync=True)

    def close(self) -> None:
        for spool in (self._row_spool, self._error_spool):
            with contextlib.suppress(OSError):
                spool.close()


def flush_files(handles: Iterable[IO[bytes]], *, sync: bool) -> None:
    """Pass the data of files to the operating system, and with `sync` to the disk."""
    for handle in handles:
        handle.flush()
        if sync:
            os.fsync(handle.fileno())


def intact_parts(rows: str | Path, errors: str | Path, parts: Iterable[Part]) -> list[Part]:
    """Return the first parts whose rows and errors are in these files without damage."""
    intact = []
    with open_file(str(rows)) as row_handle, open_file(str(errors)) as error_handle:
        for part in parts:
            if not (
                _matches(row_handle, part.rows, part.rows_checksum)
                and _matches(error_handle, part.errors, part.errors_checksum)
            ):
                break
            intact.append(part)
    return intact


def is_intact(files: PartFiles, part: Part) -> bool:
    """Return whether the files of a part exist without damage.

    A part without errors needs no file of errors.
    """
    try:
        with open_file(files.rows) as rows:
            if not _matches(rows, part.rows, part.rows_checksum) or rows.read(1):
                return False
        if not part.errors:
            return True
        with open_file(files.errors) as errors:
            return _matches(errors, part.errors, part.errors_checksum) and not errors.read(1)
    except FileNotFoundError:
        return False


def _matches(handle: IO[bytes], size: int, checksum: int) -> bool:
    """Return whether the next bytes of a file have this checksum."""
    value = 0
    while size and (block := handle.read(min(size, _BLOCK))):
        value = zlib.crc32(block, value)
        size -= len(block)
    return not size and value == checksum
