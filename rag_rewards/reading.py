"""Sources of rows: JSON lines or Parquet, cut into chunks, groups kept whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
from array import array
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import msgspec

from rag_rewards.errors import MissingExtraError, UsageError
from rag_rewards.scoring import Chunk

Line = tuple[int, bytes]
"""1-based physical line number, and the line."""

CHUNK_ROWS = 512
CHUNK_BYTES = 1 << 19
BUFFER_BYTES = 1 << 20  # more than a chunk: lines longer than the buffer are slow to put together


@dataclass
class Source:
    """An open input and how much of it has been read, for a progress bar."""

    lines: Iterator[Line]
    size: int | None
    handle: IO[bytes] | None = None
    file: IO[bytes] | None = None

    def close(self) -> None:
        if self.file:
            self.file.close()

    def position(self) -> int:
        try:
            return self.handle.tell() if self.handle else 0
        except (OSError, ValueError):
            return 0


def open_source(path: str) -> Source:
    """`-` is standard input; .parquet is read with pyarrow; anything else is JSON lines."""
    if path == "-":
        return Source(_numbered(_after_mark(sys.stdin.buffer), "standard input"), None)
    file = Path(path)
    if file.is_dir():
        raise UsageError(f"{path} is a folder, not a file of rows")
    try:
        handle = file.open("rb", buffering=BUFFER_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if file.suffix == ".parquet":
        return Source(parquet_lines(handle, path), None, file=handle)
    size = file.stat().st_size if file.is_file() else None
    return Source(_numbered(_after_mark(handle), path), size, handle, handle)


def _after_mark(handle: IO[bytes]) -> IO[bytes]:
    """Step over the byte order mark that some editors put before the first row."""
    with contextlib.suppress(OSError):  # what cannot be read says so when its lines are
        if isinstance(handle, BufferedReader) and handle.peek(3).startswith(BOM_UTF8):
            handle.read(len(BOM_UTF8))
    return handle


def _numbered(handle: IO[bytes], path: str) -> Iterator[Line]:
    """Lines with their numbers; blank ones are skipped but counted."""
    number = 0
    while True:
        try:
            block = handle.readlines(CHUNK_BYTES)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
        if not block:
            return
        for line in block:
            number += 1
            if not line.isspace():
                yield number, line


def parquet_lines(handle: IO[bytes], path: str) -> Iterator[Line]:
    """Rows of a Parquet file as JSON lines, so that there is one way to read a row."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", extra="parquet") from None
    try:
        table = pq.ParquetFile(handle)
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    number = 0
    batches = table.iter_batches(batch_size=CHUNK_ROWS)
    while True:
        try:
            batch = next(batches, None)
            rows = batch.to_pylist(maps_as_pydicts="strict") if batch else []
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise UsageError(f"cannot read {path} after row {number}: {error}") from None
        if batch is None:
            return
        for row in rows:
            number += 1
            yield number, _row_line(row)


def _row_line(row: dict[str, Any]) -> bytes:
    kept = {name: value for name, value in row.items() if value is not None}
    try:
        return msgspec.json.encode(kept) if _finite(kept) else json.dumps(kept).encode()
    except (TypeError, ValueError):
        return json.dumps(kept, default=str).encode()


def _finite(value: Any) -> bool:
    """Whether JSON can hold every number; NaN must reach the decoder, to be named there."""
    if isinstance(value, float):
        return value - value == 0.0
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    return True


# --- chunks ------------------------------------------------------------------------------------


def chunks(lines: Iterable[Line]) -> Iterator[Chunk]:
    """Lines in chunks of bounded size, for rewards that see single rollouts."""
    kept: list[bytes] = []
    numbers: list[int] = []
    size = 0
    for number, line in lines:
        kept.append(line)
        numbers.append(number)
        size += len(line)
        if len(kept) >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield Chunk(lines=kept, numbers=numbers)
            kept, numbers, size = [], [], 0
    if kept:
        yield Chunk(lines=kept, numbers=numbers)


@dataclass
class Group:
    """Lines that are scored together, or the reason why they cannot be."""

    lines: list[Line]
    problem: str = ""


def group_chunks(groups: Iterable[Group]) -> Iterator[Chunk]:
    """Whole groups in chunks of about the usual size."""
    members: list[Group] = []
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


def _chunk_of(groups: list[Group]) -> Chunk:
    lines = [line for group in groups for line in group.lines]
    return Chunk(
        lines=[line for _, line in lines],
        numbers=[number for number, _ in lines],
        sizes=[len(group.lines) for group in groups],
        problems=[group.problem for group in groups],
    )


# --- groups ------------------------------------------------------------------------------------


class _Key(msgspec.Struct):
    group: str | int | None = None
    question: str | None = None


_KEY = msgspec.json.Decoder(_Key)
_TORN_KEY = re.compile(rb'"(group|question)"\s{0,8}:\s{0,8}("(?:[^"\\]|\\.){0,4096}"|\d{1,18})')


def group_key(line: bytes) -> str | None:
    """The group a line belongs to, also where the line does not decode; None when unknown."""
    try:
        key = _KEY.decode(line)
        return str(key.group) if key.group is not None else key.question
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    found: dict[bytes, bytes] = {}
    for match in _TORN_KEY.finditer(line):
        found.setdefault(match[1], match[2])
    text = found.get(b"group", found.get(b"question"))
    try:
        return str(msgspec.json.decode(text)) if text else None
    except (msgspec.MsgspecError, UnicodeError):
        return None


def groups_by_key(lines: Iterable[Line]) -> Iterator[Group]:
    """Neighbouring lines of one key. A key that reappears later is a problem, and says so.

    A line whose key cannot be read may belong to the group before it or to the one after it:
    neither may be scored without it.
    """
    seen: set[bytes] = set()
    current: list[Line] = []
    key: str | None = None
    doubt = ""
    problem = ""
    for number, line in lines:
        found = group_key(line)
        if found is None and _decodes(line):
            if current:
                yield Group(current, problem)
            yield Group([(number, line)], NO_KEY)
            current, key, doubt, problem = [], None, "", ""
            continue
        if found is None:
            doubt = f"line {number} beside it cannot be read and may belong to it"
            if current:
                current.append((number, line))
            else:
                yield Group([(number, line)], doubt)
            continue
        if not current or found != key:
            if current:
                yield Group(current, problem)
            current, key = [], found
            problem = doubt
            mark = hashlib.blake2b(found.encode("utf-8", "replace"), digest_size=8).digest()
            if mark in seen:
                problem = f"group {_short(found)} appeared before; {TOGETHER}"
            seen.add(mark)
        doubt = ""
        current.append((number, line))
    if current:
        yield Group(current, problem)


def groups_of(source: Source, size: int | None = None, sort: bool = False) -> Iterator[Group]:
    """The groups of an open file: neighbours of one key, every `size` rows, or brought together.

    UsageError for a size below 1, and for a size and `sort` together.
    """
    if size is not None and size < 1:
        raise UsageError(f"--group-size is at least 1, found {size}")
    if size is not None and sort:
        raise UsageError("--group-size goes by position, --sort by key: give one of them")
    if size is not None:
        yield from groups_by_size(source.lines, size)
    else:
        yield from groups_by_key(sort_groups(source) if sort else source.lines)


NO_KEY = "no group: give `group` or `question` in the row, or --group-size"
TOGETHER = "its rollouts must stand together: sort the file, or give --sort"


def groups_by_size(lines: Iterable[Line], size: int) -> Iterator[Group]:
    """Every `size` lines are a group; their keys must agree and the last must be whole."""
    current: list[Line] = []
    for item in lines:
        current.append(item)
        if len(current) == size:
            yield Group(current, _disagreement(current))
            current = []
    if current:
        yield Group(current, f"half a group: {len(current)} of {size} rollouts")


def _disagreement(lines: list[Line]) -> str:
    keys = {key for _, line in lines if (key := group_key(line)) is not None}
    if len(keys) < 2:
        return ""
    first, second = sorted(keys)[:2]
    return f"the rows of one group name several: {_short(first)} and {_short(second)}"


def _decodes(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


# --- sorting -----------------------------------------------------------------------------------


def sort_groups(source: Source) -> Iterator[Line]:
    """Lines group after group, in order of first appearance, wherever they stand in the file.

    Holds a few bytes per row, never the rows: an index is made first, then every line is read
    again by its offset. What cannot be read twice is kept aside on disk.
    """
    handle = source.handle if source.handle and source.handle.seekable() else _aside(source)
    offsets, numbers, ranks = array("q"), array("q"), array("q")
    rank: dict[bytes, int] = {}
    at = handle.tell()
    for number, line in enumerate(iter(handle.readline, b""), start=1):
        if not line.isspace():
            key = group_key(line)
            # A line without a readable key is a group of its own.
            text = f"\0{number}" if key is None else key
            mark = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
            ranks.append(rank.setdefault(mark, len(rank)))
            offsets.append(at)
            numbers.append(number)
        at += len(line)
    try:
        for i in sorted(range(len(ranks)), key=ranks.__getitem__):
            handle.seek(offsets[i])
            yield numbers[i], handle.readline()
    finally:
        if handle is not source.handle:
            handle.close()


def _aside(source: Source) -> IO[bytes]:
    import tempfile

    aside = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as its reader)
    last = 0
    for number, line in source.lines:
        aside.write(b"\n" * (number - last - 1) + line.rstrip(b"\r\n") + b"\n")
        last = number
    aside.seek(0)
    return aside
