"""A data set's own file, record by record: JSON lines, a JSON array (packed or not), or Parquet.

An array is never held in memory: it is cut into its elements while it is read.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from rag_rewards.datasets.gold import Problem
from rag_rewards.errors import UsageError
from rag_rewards.reading import parquet_lines

Record = tuple[int, Any]
"""1-based number (of the line, or of the array's element), and what stands there."""

CHUNK = 1 << 20
LARGEST = 1 << 28
"""A record beyond this is a fault of the file: a quotation mark that never closes."""
_HEAD = 1 << 16
_ARRAY = re.compile(r'\s*(?:\{\s*"[Dd]ata"\s*:\s*)?\[')
_BETWEEN = re.compile(r"[\s,]*")
_PACKED: dict[bytes, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
}
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""Where half of a surrogate pair can come from: an escape."""
_BEGUN = re.compile(
    r"\s*|t(ru?)?|f(a(ls?)?)?|n(ul?)?|N(a)?|-?I\w{0,6}|-|\.|\.?\d*[eE][+-]?|"
    r"\\?u?[\da-fA-F]{0,4}"
)
"""What can stand after the place of the fault when a text ends in a literal, number or escape."""
_POINTER = "version https://git-lfs"


class Records:
    """The records of a file. A file that ends in the middle of one is an error, never a short file.

    Lines that are no JSON come as a Problem.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        file = Path(path)
        if path == "-" or (file.exists() and not file.is_file()):
            raise UsageError(f"{path} is no regular file: it is read twice, so give a file")
        try:
            self._raw: IO[bytes] = file.open("rb")
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        self.size = file.stat().st_size

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def position(self) -> int:
        """Bytes read so far, for a progress bar."""
        return self._raw.tell()

    def __iter__(self) -> Iterator[Record]:
        self._raw.seek(0)
        if self.path.endswith(".parquet"):
            for number, line in parquet_lines(self._raw, self.path):
                yield number, json.loads(line)
            return
        magic = self._raw.read(3)
        self._raw.seek(0)
        opener = next(
            (opener for begins, opener in _PACKED.items() if magic.startswith(begins)), None
        )
        # The file below a packed one stays open: it is read again.
        with opener(self._raw) if opener else contextlib.nullcontext(self._raw) as handle:
            try:
                yield from self._records(cast("IO[bytes]", handle))
            except UnicodeDecodeError as error:
                raise UsageError(f"{self.path} is not UTF-8 text: {error.reason}") from None
            except (EOFError, zlib.error, OSError) as error:
                raise UsageError(f"{self.path}: the download is not whole: {error}") from None

    def _records(self, handle: IO[bytes]) -> Iterator[Record]:
        head = handle.read(_HEAD)
        start = head.decode("utf-8-sig", "ignore").lstrip()
        if not start:
            raise UsageError(f"{self.path} is empty")
        if start.startswith("<"):
            raise UsageError(f"{self.path} is a web page: the download was answered with one")
        if start.startswith(_POINTER):
            raise UsageError(f"{self.path} is a Git LFS pointer, not the file: git lfs pull")
        handle.seek(0)
        if _ARRAY.match(start):
            return self._elements(handle)
        return self._lines(handle)

    def _lines(self, handle: IO[bytes]) -> Iterator[Record]:
        number, line, broken = 0, b"", ""
        for number, line in enumerate(handle, start=1):
            if broken:
                yield number - 1, Problem("not JSON", broken)
                broken = ""
            if line.isspace():
                continue
            try:
                yield number, _decoded(line.removeprefix(codecs.BOM_UTF8))
            except (ValueError, RecursionError) as error:
                broken = str(error)
        if not broken:
            return
        if line.startswith(b"{") and not line.endswith(b"\n"):
            raise self._truncated(number - 1)
        if number == 1:
            raise UsageError(f"{self.path} is neither JSON lines nor a JSON array: {broken}")
        yield number, Problem("not JSON", broken)

    def _elements(self, handle: IO[bytes]) -> Iterator[Record]:
        decode = codecs.getincrementaldecoder("utf-8-sig")().decode

        def more(size: int) -> str:
            text = ""
            while not text and (chunk := handle.read(size)):
                text = decode(chunk)  # nothing yet, where a chunk ends in its first letter
            return text or decode(b"", final=True)

        text = more(CHUNK)
        found = _ARRAY.match(text)
        at, number = found.end() if found else 0, 0
        scan = json.JSONDecoder().raw_decode
        while True:
            at = _skip(text, at)
            if text.startswith("]", at):
                return
            start = at
            try:
                value, at = scan(text, at)
            except (ValueError, RecursionError) as error:
                if not _cut(error, text, at):
                    raise UsageError(
                        f"{self.path}: row {number + 1} is not JSON: {error}"
                    ) from None
                text = self._longer(text[at:], number, more)
                at = 0
                continue
            number += 1
            yield number, _text_or_problem(value) if _HALF.search(text, start, at) else value

    def _longer(self, rest: str, number: int, more: Callable[[int], str]) -> str:
        """The rest of the text with what follows it; twice as much for a long record."""
        if len(rest) > LARGEST:
            raise UsageError(
                f"{self.path}: row {number + 1} has no end within {len(rest):,} letters"
            )
        added = more(max(CHUNK, len(rest)))
        if not added:
            raise self._truncated(number)
        return rest + added

    def _truncated(self, number: int) -> UsageError:
        return UsageError(
            f"{self.path} ends in the middle, after {number:,} whole rows and {self.size:,} bytes: "
            "the download is not whole"
        )


def _decoded(line: bytes) -> Any:
    """A line's record. Python writes NaN into JSON, which is none, and reads it again."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError):
        return _text_or_problem(json.loads(line))


def _text_or_problem(value: Any) -> Any:
    """A record, or what is wrong with it: half of a surrogate pair is no text."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Problem("not JSON", "half of a surrogate pair")
    return value


def _skip(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _cut(error: Exception, text: str, at: int) -> bool:
    """Whether a record fails to decode because the text ends in it, not because it is wrong."""
    if at >= len(text):
        return True
    if not isinstance(error, json.JSONDecodeError):
        return False
    if error.msg.startswith("Unterminated string"):
        return True
    return _BEGUN.fullmatch(text, error.pos) is not None
