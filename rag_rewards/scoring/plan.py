"""Division of the input into shards, at boundaries of rows and groups."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from rag_rewards.rows.line_groups import MAX_GROUP_BYTES, MAX_GROUP_ROWS, is_group_start
from rag_rewards.scoring.input_files import InputFile, Piece, RowFile, open_rows, renamed

MIN_BYTES, MAX_BYTES = 1 << 20, 1 << 25
SHARDS_PER_WORKER = 8
"""Number of shards per worker, so that all workers end at about the same time."""


class Shard(msgspec.Struct, frozen=True):
    """A part of the input that is scored independently of the other shards."""

    index: int
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """The size: bytes of JSON lines, rows of Parquet."""
        return sum(piece.end - piece.start for piece in self.pieces)

    @property
    def lines(self) -> str:
        """The line numbers, for messages."""
        last = self.pieces[-1]
        return f"lines {self.pieces[0].first + 1} to {last.first + last.lines}"


class Grouping(msgspec.Struct, frozen=True):
    """The rows that belong to one shard because they form a group.

    by_key    adjacent rows with equal keys form a group
    size      number of adjacent rows in a group; None groups by key, or not at all
    together  adjacent rows with equal keys, up to a limit, are scored together, because the failure
              of a model concerns all of them
    """

    by_key: bool = False
    size: int | None = None
    together: bool = False


def shard_bytes(files: Sequence[InputFile], workers: int) -> int:
    """Return the size of a shard: a fraction of the input for each worker, 1 to 32 MiB."""
    size = sum(file.size for file in files) // (workers * SHARDS_PER_WORKER)
    return min(max(size, MIN_BYTES), MAX_BYTES)


def plan_shards(
    files: Sequence[InputFile], size: int, grouping: Grouping, columns: str | None = None
) -> Iterator[Shard]:
    """Yield shards of about `size` bytes that together contain all rows in order.

    Lines have the numbers that they have when the files are read one after the other. Equal
    arguments give equal shards. Raises UsageError if a file has changed.
    """
    planner = _Planner(size, grouping, columns)
    index = before = 0
    pieces: list[Piece] = []
    for number, file in enumerate(files):
        with contextlib.closing(open_rows(file)) as rows:
            lines = 0
            for start, end, is_last in planner.cuts(rows):
                count = rows.count_lines(start, end)
                if end > start:
                    pieces.append(Piece(number, start, end, before + lines, count))
                lines += count
                if is_last and pieces:
                    yield Shard(index, tuple(pieces))
                    index, pieces = index + 1, []
            if number < len(files) - 1:
                # The reader of all files does not count the blank lines at the end of a file.
                before += lines - rows.count_blank_lines()
    if pieces:
        yield Shard(index, tuple(pieces))


class _Planner:
    """Where shards end in the files, which are read one after the other."""

    def __init__(self, size: int, grouping: Grouping, columns: str | None) -> None:
        self._size = size
        self._grouping = grouping
        self._columns = columns
        self._missing = size
        self._boundary: _Boundary | None = None
        self._rows = 0
        """Number of rows in the shard so far; only if groups have a size."""

    def cuts(self, rows: RowFile) -> Iterator[tuple[int, int, bool]]:
        """Yield the start and end of each piece of a file, and whether a shard ends there."""
        position = rows.start
        while position < rows.end:
            end = position if self._boundary else rows.after(position, self._missing)
            if self._grouping.size is not None and self._boundary is None:
                for start, _ in rows.rows_from(position):
                    if start >= end:
                        break
                    self._rows += 1
            if end < rows.end or self._boundary:
                self._boundary = self._boundary or self._new_boundary()
                cut = self._boundary.find(rows, end)
                if cut is not None:
                    self._missing, self._boundary, self._rows = self._size, None, 0
                    yield position, cut, True
                    position = cut
                    continue
            yield position, rows.end, False
            self._missing -= rows.size_of(position, rows.end)
            if self._missing <= 0:
                self._boundary = self._boundary or self._new_boundary()
            return

    def _new_boundary(self) -> _Boundary:
        if self._grouping.size is not None:
            return _AfterRows(-self._rows % self._grouping.size)
        if self._grouping.by_key:
            return _BetweenGroups(self._columns)
        if self._grouping.together:
            return _BetweenGroups(self._columns, MAX_GROUP_ROWS, MAX_GROUP_BYTES)
        return _Anywhere()


class _Boundary(Protocol):
    """A search for the end of a shard, which can continue in the next file."""

    def find(self, rows: RowFile, position: int) -> int | None:
        """Return the first boundary from a position on, or None if the file has none."""
        ...


class _Anywhere:
    def find(self, rows: RowFile, position: int) -> int | None:
        return position


class _AfterRows:
    """The boundary after a number of rows."""

    def __init__(self, count: int) -> None:
        self._count = count

    def find(self, rows: RowFile, position: int) -> int | None:
        for start, _ in rows.rows_from(position):
            if not self._count:
                return start
            self._count -= 1
        return None


class _BetweenGroups:
    """The boundary between two rows of different groups, or after a number of rows or bytes."""

    def __init__(self, columns: str | None, rows: float = math.inf, size: float = math.inf) -> None:
        self._columns = columns
        self._rows = rows
        self._size = size
        self._previous: bytes | None = None

    def find(self, rows: RowFile, position: int) -> int | None:
        for start, line in renamed(rows.rows_from(position), self._columns):
            is_large = self._rows <= 0 or self._size <= 0
            if self._previous is not None and (is_large or is_group_start(self._previous, line)):
                return start
            self._previous = line
            self._rows -= 1
            self._size -= len(line)
        return None
