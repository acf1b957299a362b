"""Sources of rows: JSON lines or Parquet, in chunks that contain whole groups."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.files.compression import compression_in, compression_of, with_complete_start
from rag_rewards.files.lines import json_lines
from rag_rewards.files.storage import input_files, is_remote, local_path, open_file, reading
from rag_rewards.files.version import FileVersion, unchanged
from rag_rewards.rollout import Rollout
from rag_rewards.rows import Chunk, Line, decode_row
from rag_rewards.rows.column_map import ColumnMap
from rag_rewards.rows.decoding import is_cut
from rag_rewards.rows.line_groups import MAX_GROUP_BYTES, MAX_GROUP_ROWS, LineGroup, is_group_start

log = logging.getLogger("rag_rewards")

CHUNK_ROWS = 512
CHUNK_BYTES = 1 << 19


@dataclass
class Source:
    """An open input, with its size and position in bytes for a progress bar."""

    lines: Iterator[Line]
    size: int | None
    handle: IO[bytes] | None = None
    """The lines as a file, which `sort_groups` reads. None if its bytes are not those of `lines`:
    standard input, Parquet, and compressed files."""
    file: IO[bytes] | None = None
    """The file that `position` uses and that `close` closes."""
    check: Callable[[], None] = lambda: None
    """Raises an error once the file has changed."""

    def close(self) -> None:
        if self.file:
            self.file.close()

    def position(self) -> int:
        try:
            return self.file.tell() if self.file else 0
        except (OSError, ValueError):
            return 0


def open_source(path: str, columns: str | None = None, *, growing: bool = False) -> Source:
    """Open rows: Parquet when the name ends in `.parquet`, else JSON lines; "-" is standard input.

    A path may be the URL of an object store. A folder, and a pattern such as `rollouts.*jsonl`,
    open all files that match, in the order of their names; their lines are numbered as those of one
    file. JSON lines may be compressed with gzip, Zstandard or bzip2, which their first bytes show.
    `columns` renames columns of other schemas; see `ColumnMap`.

    With `growing`, a file may become longer while it is read, and a last line that is still being
    written is left out. Raises UsageError when a file cannot be opened; reading the lines raises it
    when a file changes, ends too early or cannot be read.
    """
    columns_of_fields = ColumnMap.of(columns)
    paths = None if path == "-" else input_files(path)
    if paths is None:
        source = _open(path, growing)
    else:
        source = Source(_lines_of_all(paths, growing), None)
    if growing:
        source.lines, source.handle = _finished(source.lines), None
    if columns is not None:
        source.lines = columns_of_fields.lines(source.lines)
        source.handle = None  # its lines have other columns
    return source


def is_splittable(path: str) -> bool:
    """Return whether a file can be read from any row: neither a device nor compressed.

    Raises UsageError when the file cannot be read.
    """
    if not is_remote(path) and not os.path.isfile(local_path(path)):
        return False
    with reading(path), open_file(path) as handle:
        if compression_in(handle) is not None:
            return False
        if not handle.read(1):
            # No compressed file is empty. The reader of streams raises the error.
            return compression_of(path) is None
        # Files of the system can have content and a size of 0.
        return is_remote(path) or os.path.getsize(local_path(path)) > 0


def _lines_of_all(paths: Sequence[str], growing: bool) -> Iterator[Line]:
    """Yield the lines of several files, one after the other, numbered as those of one file."""
    first = 0
    for path in paths:
        if FileVersion.of(path) is None:  # removed since the pattern was read
            continue
        last = 0
        with contextlib.closing(_open(path, growing)) as source:
            for last, line in source.lines:
                yield first + last, line
        first += last


def _finished(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines without the last one of a file if it ends in the middle of a row."""
    for number, line in lines:
        if line.endswith(b"\n") or not is_cut(line):
            yield number, line
        else:
            log.warning("line %d is left out, because it ends in the middle of a row", number)


def _open(path: str, growing: bool = False) -> Source:
    if path == "-":
        check = unchanged(sys.stdin.buffer, "standard input", growing=growing)
        return Source(
            json_lines(with_complete_start(sys.stdin.buffer), "standard input", check), None
        )
    file = Path(local_path(path.partition("?")[0] if is_remote(path) else path))
    with reading(path):
        handle = open_file(path)
    check = unchanged(handle, path, growing=growing)
    if file.suffix == ".parquet":
        from rag_rewards.files.parquet import parquet_lines

        return Source(parquet_lines(handle, path, check=check), None, file=handle)
    is_regular = is_remote(path) or file.is_file()
    version = FileVersion.of(path) if is_regular else None
    size = None if version is None else version.size
    start = handle if is_regular else with_complete_start(handle)
    try:
        sortable = None if compression_in(start) else handle
        return Source(json_lines(start, path, check), size, sortable, handle, check)
    except UsageError:
        handle.close()
        raise


def read_rollouts(path: str, columns: str | None = None) -> list[Rollout]:
    """Return the rows of a file. Raises UsageError, which names the line of an invalid row."""
    rollouts = []
    with contextlib.closing(open_source(path, columns)) as source:
        for number, line in source.lines:
            try:
                rollouts.append(decode_row(line))
            except RolloutError as error:
                raise UsageError(f"line {number}: {error}") from None
    return rollouts


# --- chunks ------------------------------------------------------------------------------------


def chunks(lines: Iterable[Line], *, with_groups: bool = False) -> Iterator[Chunk]:
    """Yield lines in chunks of bounded size, for rewards that score single rollouts.

    With `with_groups`, adjacent lines of one group are in one chunk, unless the group has more than
    `MAX_GROUP_ROWS` lines or `MAX_GROUP_BYTES`. The failure of a model concerns all of them.
    """
    members: list[bytes] = []
    numbers: list[int] = []
    size = 0
    is_full = False
    for number, line in lines:
        if is_full and _ends_before(members, size, line):
            yield Chunk(lines=members, numbers=numbers)
            members, numbers, size = [], [], 0
        members.append(line)
        numbers.append(number)
        size += len(line)
        is_full = size >= CHUNK_BYTES or len(members) >= CHUNK_ROWS
        if is_full and not with_groups:
            yield Chunk(lines=members, numbers=numbers)
            members, numbers, size, is_full = [], [], 0, False
    if members:
        yield Chunk(lines=members, numbers=numbers)


def _ends_before(members: Sequence[bytes], size: int, line: bytes) -> bool:
    """Return whether a full chunk ends before a line: at a new group, or at a limit."""
    is_large = len(members) >= CHUNK_ROWS + MAX_GROUP_ROWS or size >= CHUNK_BYTES + MAX_GROUP_BYTES
    return is_large or is_group_start(members[-1], line)


def group_chunks(groups: Iterable[LineGroup]) -> Iterator[Chunk]:
    """Yield whole groups in chunks of about the size of `chunks`."""
    members: list[LineGroup] = []
    rows = size = 0
    for group in groups:
        members.append(group)
        rows += len(group.lines)
        size += sum(len(line) for _, line in group.lines)
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield _chunk_of(members)
            members, rows, size = [], 0, 0
    if members:
        yield _chunk_of(members)


def _chunk_of(groups: list[LineGroup]) -> Chunk:
    lines = [line for group in groups for line in group.lines]
    return Chunk(
        lines=[line for _, line in lines],
        numbers=[number for number, _ in lines],
        sizes=[len(group.lines) for group in groups],
        problems=[group.problem for group in groups],
    )
