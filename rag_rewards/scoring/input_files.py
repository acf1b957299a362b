"""Input files that can be read from any row: JSON lines and Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.files.lines import numbered_lines, read_line, skip_to_lines
from rag_rewards.files.storage import open_file, reading
from rag_rewards.files.version import FileVersion
from rag_rewards.rows import Line
from rag_rewards.rows.column_map import ColumnMap

_BLOCK = 1 << 20


class InputFile(msgspec.Struct, frozen=True):
    """A file with its size in bytes and the time of its last change in nanoseconds."""

    path: str
    size: int
    modified: int

    @classmethod
    def of(cls, path: str) -> InputFile:
        """Return a file as it is now. Raises UsageError if it cannot be read."""
        with reading(path):
            version = FileVersion.of(path)
        if version is None:
            raise UsageError(f"cannot read {path}: No such file or directory")
        return cls(path, version.size, version.modified)

    def open(self) -> IO[bytes]:
        """Open the file. Raises UsageError if it cannot be read or has changed."""
        self.check()
        with reading(self.path):
            return open_file(self.path)

    def check(self) -> None:
        """Raise UsageError if the file is not as it was."""
        if InputFile.of(self.path) != self:
            raise self.changed()

    def changed(self) -> UsageError:
        """Return the error for a file that is not as it was."""
        return UsageError(
            f"{self.path} changed while it was read: wait until it is complete, then score it again"
        )


class Piece(msgspec.Struct, frozen=True):
    """Adjacent rows of one file.

    file        position of the file among the input files
    start, end  position of the first row and after the last row: bytes of JSON lines, rows of
                Parquet
    first       number of lines of the input before the piece
    lines       number of lines of the piece
    """

    file: int
    start: int
    end: int
    first: int
    lines: int


def is_parquet(path: str) -> bool:
    """Return whether the name of a file is that of a Parquet file."""
    return path.partition("?")[0].endswith(".parquet")


def renamed(lines: Iterator[Line], columns: str | None) -> Iterator[Line]:
    """Yield the lines with renamed columns."""
    return lines if columns is None else ColumnMap.of(columns).lines(lines)


class JsonLines:
    """An open file of JSON lines. A position is the offset of a line in bytes."""

    def __init__(self, file: InputFile) -> None:
        self.file = file
        self._handle = file.open()
        try:
            skip_to_lines(self._handle, file.path)
            self.start, self.end = self._handle.tell(), file.size
        except BaseException:
            self._handle.close()
            raise

    def close(self) -> None:
        self._handle.close()

    def after(self, position: int, size: int) -> int:
        """Return the position of the first row that is at least `size` bytes later."""
        if position + size >= self.end:
            return self.end
        with reading(self.file.path):
            self._handle.seek(position + size - 1)
            while (piece := self._handle.readline(_BLOCK)) and not piece.endswith(b"\n"):
                pass
            return min(self._handle.tell(), self.end)

    def size_of(self, start: int, end: int) -> int:
        """Return the size in bytes of the rows between two positions."""
        return end - start

    def count_lines(self, start: int, end: int) -> int:
        """Return the number of lines between two positions."""
        lines, last = 0, b"\n"
        for block in self._blocks(start, end):
            lines += block.count(b"\n")
            last = block[-1:]
        return lines + (last != b"\n")

    def _blocks(self, start: int, end: int) -> Iterator[bytes]:
        with reading(self.file.path):
            self._handle.seek(start)
            while start < end:
                block = self._handle.read(min(_BLOCK, end - start))
                if not block:
                    raise self.file.changed()
                start += len(block)
                yield block

    def count_blank_lines(self) -> int:
        """Return the number of blank lines at the end of the file."""
        newlines, end, last = 0, self.end, b""
        while end > self.start:
            begin = max(self.start, end - _BLOCK)
            block = b"".join(self._blocks(begin, end))
            last = last or block[-1:]
            rows = block.rstrip()
            newlines += block.count(b"\n", len(rows))
            if rows:
                # The first of these line ends belongs to the last row.
                return newlines - 1 + (last != b"\n") if newlines else 0
            end = begin
        return newlines + (last not in (b"\n", b""))

    def rows_from(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Yield the rows from a position on, each with its position."""
        with reading(self.file.path):
            self._handle.seek(position)
            while position < self.end and (line := read_line(self._handle)):
                if not line.isspace():
                    yield position, line
                position += len(line)

    def read(self, piece: Piece) -> Iterator[Line]:
        """Yield the rows of a piece with their line numbers. UsageError if the file changed."""
        with reading(self.file.path):
            self._handle.seek(piece.start)
        size = piece.end - piece.start
        # One check at the end is enough, since the rows of a shard count only when it is complete.
        yield from numbered_lines(
            self._handle, self.file.path, piece.first, size, check=lambda: None
        )
        if self._handle.tell() != piece.end:
            raise self.file.changed()
        self.file.check()


class ParquetRows:
    """An open Parquet file, with the methods of `JsonLines`. A position is a number of rows."""

    def __init__(self, file: InputFile) -> None:
        self.file = file
        self._handle = file.open()
        try:
            from rag_rewards.files.parquet import open_parquet

            metadata = open_parquet(self._handle, file.path).metadata
        except BaseException:
            self._handle.close()
            raise
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        self._sizes: list[tuple[int, int]] = [(g.num_rows, g.total_byte_size) for g in groups]
        self.start, self.end = 0, int(metadata.num_rows)

    def close(self) -> None:
        self._handle.close()

    def after(self, position: int, size: int) -> int:
        end = 0
        for rows, in_bytes in self._sizes:
            end += rows
            if end > position:
                size -= in_bytes
                if size <= 0:
                    return end
        return self.end

    def size_of(self, start: int, end: int) -> int:
        size = before = 0
        for rows, in_bytes in self._sizes:
            shared = min(end, before + rows) - max(start, before)
            size += in_bytes * max(shared, 0) // max(rows, 1)
            before += rows
        return size

    def count_lines(self, start: int, end: int) -> int:
        return end - start

    def count_blank_lines(self) -> int:
        return 0

    def rows_from(self, position: int) -> Iterator[tuple[int, bytes]]:
        from rag_rewards.files.parquet import parquet_lines

        for number, line in parquet_lines(self._handle, self.file.path, position):
            yield number - 1, line

    def read(self, piece: Piece) -> Iterator[Line]:
        before = piece.first - piece.start
        from rag_rewards.files.parquet import parquet_lines

        rows = parquet_lines(self._handle, self.file.path, piece.start, piece.end)
        for number, line in rows:
            yield before + number, line
        self.file.check()


RowFile = JsonLines | ParquetRows


def open_rows(file: InputFile) -> RowFile:
    """Open a file for reading rows from any position. Raises UsageError if it has changed."""
    return ParquetRows(file) if is_parquet(file.path) else JsonLines(file)
