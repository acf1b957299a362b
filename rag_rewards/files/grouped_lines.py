"""The lines of a source in groups: by their keys or by their number, sorted on request."""

from __future__ import annotations

import contextlib
import tempfile
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO

from rag_rewards.errors import OptionError
from rag_rewards.files.lines import check_line, read_line, with_blank_lines
from rag_rewards.files.output import temporary_file_error
from rag_rewards.files.sources import Source
from rag_rewards.files.storage import reading
from rag_rewards.rows import Line, line_key
from rag_rewards.rows.line_groups import (
    LineGroup,
    key_digest,
    line_groups_by_key,
    line_groups_by_size,
)


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """How rows form groups. By default, adjacent rows with equal keys are a group.

    Raises OptionError for a group size below 1, and for a group size together with `sort`.
    """

    group_size: int | None = None
    """Number of consecutive rows of a group. By default, rows with equal `group` form a group."""
    sort: bool = False
    """Put the rows of each group next to each other before scoring."""

    def __post_init__(self) -> None:
        check_grouping(self.group_size, self.sort)


def read_groups(source: Source, size: int | None = None, sort: bool = False) -> Iterator[LineGroup]:
    """Yield the groups of an open file: adjacent lines of one key, or every `size` lines.

    `sort` brings the lines of a group together first. Raises OptionError for a size below 1, and
    for a size together with `sort`.
    """
    check_grouping(size, sort)
    if size is not None:
        yield from line_groups_by_size(source.lines, size)
    else:
        yield from line_groups_by_key(sort_groups(source) if sort else source.lines)


def check_grouping(size: int | None, sort: bool) -> None:
    """Raise OptionError for a group size below 1, and for a group size together with `sort`."""
    if size is not None and size < 1:
        raise OptionError("{group_size} must be at least 1, found {size}", size=size)
    if size is not None and sort:
        raise OptionError("{group_size} groups by position and {sort} by key: use one of them")


# --- sorting -----------------------------------------------------------------------------------


def sort_groups(source: Source) -> Iterator[Line]:
    """Yield the lines group after group. Groups are in order of their first line.

    Memory holds a few bytes per row: the first reading makes an index, and the second reads each
    line by its offset. A source that cannot be read twice is copied to a temporary file.
    """
    if source.handle and source.handle.seekable():
        with reading(str(source.handle.name)):
            yield from _sorted_lines(source.handle, source.check)
    else:
        with contextlib.closing(_copied(source)) as copy:
            yield from _sorted_lines(copy, source.check)


def _sorted_lines(handle: IO[bytes], check: Callable[[], None]) -> Iterator[Line]:
    offsets, numbers, ranks = array("q"), array("q"), array("q")
    rank: dict[bytes, int] = {}
    offset = handle.tell()
    for number, line in enumerate(iter(partial(read_line, handle), b""), start=1):
        check_line(line, number, str(handle.name))
        if not line.isspace():
            key = line_key(line)
            # A line without a readable key is a group of its own.
            digest = key_digest(f"\0{number}" if key is None else key)
            ranks.append(rank.setdefault(digest, len(rank)))
            offsets.append(offset)
            numbers.append(number)
        offset += len(line)
    check()
    for i in sorted(range(len(ranks)), key=ranks.__getitem__):
        handle.seek(offsets[i])
        yield numbers[i], read_line(handle)
    check()


def _copied(source: Source) -> IO[bytes]:
    """Copy the lines of a source to a temporary file, under their numbers."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as its reader)
    try:
        copy.writelines(with_blank_lines(source.lines))
        copy.seek(0)
    except OSError as error:
        with contextlib.suppress(OSError):
            copy.close()
        raise temporary_file_error(error) from None
    return copy
