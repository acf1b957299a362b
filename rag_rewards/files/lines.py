"""The lines of a file with their numbers: JSON lines from a file or a pipe, plain or compressed."""

from __future__ import annotations

import contextlib
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from rag_rewards.errors import UsageError
from rag_rewards.files.compression import (
    DamagedError,
    compression_in,
    compression_of,
    decompressed,
    peek,
)
from rag_rewards.files.version import unchanged
from rag_rewards.rows import Line

LINE_BYTES = 1 << 28
"""Longest line of a file. A compressed file of 1 MB may have a line of gigabytes."""
CHECKED_BYTES = 1 << 19
"""Number of bytes after which a reader looks whether another process has changed the file."""
_ARRAY_OF_ROWS = re.compile(rb"\s{0,64}\[\s{0,64}\{")
_TABLES = (".csv", ".tsv", ".xls", ".xlsx")
"""Files of tables that only a library of data frames reads."""
_OTHER_FORMATS = {
    b"\xfd7zXZ": "is compressed with xz: decompress it first (unxz), or compress it with gzip",
    b"PK\x03\x04": "is a zip archive: unpack it first (unzip)",
    b"\xff\xfe": "is UTF-16: convert it to UTF-8",
    b"\xfe\xff": "is UTF-16: convert it to UTF-8",
    b"PAR1": "is a Parquet file: give it a name that ends in .parquet",
}
"""The first bytes of files that contain no JSON lines, and what to do with them."""


def json_lines(handle: IO[bytes], path: str, check: Callable[[], None]) -> Iterator[Line]:
    """Return the lines of a file, which may be compressed, with their numbers.

    `path` is the file's name in messages. `check` raises an error once the file has changed. Raises
    UsageError for a file of another format.
    """
    compression = compression_in(handle)
    if compression is not None:
        handle = decompressed(handle, compression)
        if compression_in(handle):
            raise UsageError(f"{path} is compressed twice: decompress it once")
    elif compression_of(path) and not peek(handle):
        raise UsageError(f"{path} is empty, which no compressed file is: create it again")
    skip_to_lines(handle, path)
    return numbered_lines(handle, path, check=check)


def skip_to_lines(handle: IO[bytes], path: str) -> None:
    """Skip the byte order mark of some editors. Raises UsageError for a file of another format."""
    if path.partition("?")[0].lower().endswith(_TABLES):
        raise UsageError(
            f"{path} has neither JSON lines nor Parquet: convert it, for example with to_json("
            "'rows.jsonl', orient='records', lines=True) of pandas, or score the data frame with "
            "rag_rewards.score"
        )
    with contextlib.suppress(OSError):  # a file that cannot be read raises at its first line
        beginning = peek(handle)
        for magic, reason in _OTHER_FORMATS.items():
            if beginning.startswith(magic):
                raise UsageError(f"{path} {reason}")
        if beginning.startswith(BOM_UTF8):
            handle.read(len(BOM_UTF8))
        if _ARRAY_OF_ROWS.match(peek(handle)):
            raise UsageError(
                f"{path} is a JSON array: write one row per line (JSON lines), as `jq -c '.[]'` "
                "does"
            )


def numbered_lines(
    handle: IO[bytes],
    path: str,
    number: int = 0,
    size: int | None = None,
    check: Callable[[], None] | None = None,
) -> Iterator[Line]:
    """Yield lines with their numbers, after line `number`. Blank lines are skipped but counted.

    `size` is the number of bytes to read, up to the end of a line. `check` raises an error once the
    file has changed. Raises UsageError for a line that is too long, and where the file cannot be
    read, after the lines before.
    """
    check = check or unchanged(handle, path)
    unchecked = CHECKED_BYTES  # the first line shows whether the file changed since it was opened
    line = b"\n"
    while line.endswith(b"\n") and (size is None or size > 0):
        try:
            line = read_line(handle)
        except DamagedError as error:
            raise UsageError(
                f"{path} after line {number}: the file {error}; create or download it again"
            ) from None
        except OSError as error:
            where = f" after line {number}" if number else ""
            raise UsageError(f"cannot read {path}{where}: {error.strerror or error}") from None
        unchecked += len(line)
        if unchecked >= CHECKED_BYTES or not line.endswith(b"\n"):  # it may be cut by a writer
            check()
            unchecked = 0
        if not line:
            return
        size = None if size is None else size - len(line)
        number += 1
        check_line(line, number, path)
        if not line.isspace():
            yield number, line
    check()


def with_blank_lines(lines: Iterable[Line]) -> Iterator[bytes]:
    """Yield lines with a line end, and blank lines where numbers are missing before them."""
    last = 0
    for number, line in lines:
        yield b"\n" * (number - last - 1) + line.rstrip(b"\r\n") + b"\n"
        last = number


def read_line(handle: IO[bytes]) -> bytes:
    """Read a line. One that is too long is cut, so that `check_line` raises an error."""
    return handle.readline(LINE_BYTES + 1)


def check_line(line: bytes, number: int, path: str) -> None:
    """Raise UsageError for a line that is too long."""
    if len(line) > LINE_BYTES:
        raise UsageError(
            f"line {number} of {path} has more than {LINE_BYTES >> 20} MiB, which is the limit of "
            "a row: remove or shorten it"
        )
