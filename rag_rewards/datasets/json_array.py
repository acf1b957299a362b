"""The elements of a JSON array or object in a file, one by one, in bounded memory.

ijson (yajl, in C) parses the file in chunks. It refuses NaN, Infinity and integers of more than 64
bits, and it changes halves of surrogate pairs without an error. Python's `json` reads all of these,
so that a file that contains one of them is loaded whole.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

from ijson import JSONError
from ijson.backends import yajl2_c

from rag_rewards.datasets.gold import Problem
from rag_rewards.errors import UsageError

CHUNK = 1 << 16
LARGEST_ELEMENT = 1 << 28
"""Bytes of an element. A longer one is a fault of the file: a quotation mark that never closes."""
MAX_DEPTH = 1_000
"""Lists and objects within each other."""
LARGEST_WHOLE = 1 << 30
"""Bytes of a file that is loaded whole."""
_START = re.compile(r'\s*(?:\{\s*"([Dd]ata)"\s*:\s*)?\[')
_KEYED = re.compile(r'\s*\{\s*"[0-9]+"\s*:\s*\{')
"""The start of an object of rows whose names are their numeric ids."""
_PAIR = 12
"""Bytes of the escapes for a surrogate pair."""
_SURROGATES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F])"
)
"""The escapes for a surrogate pair, or, as group 1, the start of an escape for half of one."""


class CutOffError(Exception):
    """The file ends inside the array, after `count` complete elements."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def starts_array(head: str) -> bool:
    """Return whether a file with this start contains rows in an array or in an object.

    The array can be the first field of an object. In an object of rows, the names are numeric ids.

    >>> starts_array('{"Data": ['), starts_array('{"21645374": {'), starts_array('{"id": {')
    (True, True, False)
    """
    return _START.match(head) is not None or _KEYED.match(head) is not None


def read_array(handle: IO[bytes], name: str, head: str) -> Iterator[Any]:
    """Yield the elements of the array in a file, or the Problem of an element.

    An element of an object of rows gets its name as `id`.

    `name` is the file's name in messages, and `head` the start of its text.

    Raises CutOffError for a file that is cut off, UnicodeDecodeError for one that is not UTF-8, and
    UsageError for one that is not JSON or has an element without an end.
    """
    start = _START.match(head)
    for key, element in _entries(handle, name, start[1] if start else None):
        yield {"id": key, **element} if start is None and isinstance(element, dict) else element


def read_entries(handle: IO[bytes], name: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the object in a file. Raises the errors of `read_array`."""
    return _entries(handle, name, None)


def _entries(handle: IO[bytes], name: str, key: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the elements of the array or object in a file with their names ("" in an array).

    `key` is the field that contains the array.
    """
    source = _Source(handle, name)
    # Not ijson.items: the path that it keeps takes memory quadratic in the depth of an element.
    events = yajl2_c.basic_parse(source, use_float=True, buf_size=CHUNK)
    try:
        for entry in _elements(islice(events, 3 if key else 1, None), source):
            source.elements += 1
            source.bytes_since = 0
            yield entry
        for _ in events:  # up to the end of the file, which may be cut off after the array
            pass
    except (JSONError, UnicodeDecodeError):
        if source.ended:
            raise CutOffError(source.elements) from None
    except _HalfPair:
        pass
    else:
        return
    handle.seek(0)
    for entry_name, element in _load(handle, name, key, source.elements)[source.elements :]:
        yield entry_name, text_or_problem(element)


def _elements(events: Iterator[tuple[str, Any]], source: _Source) -> Iterator[tuple[str, Any]]:
    """Yield the elements of an array or object from the events after its start, up to its end."""
    parents: list[Any] = []
    parent: Any = None
    name = entry_name = ""
    for event, value in events:
        if event == "map_key":
            name = value
            if parent is None:
                entry_name = name
            continue
        if event == "end_map" or event == "end_array":
            if parent is None:
                return
            value, parent = parent, parents.pop()
            if parent is None:
                yield entry_name, value
            continue
        opens = event == "start_map" or event == "start_array"
        if opens:
            value = {} if event == "start_map" else []
        if type(parent) is list:
            parent.append(value)
        elif parent is not None:
            parent[name] = value
        elif not opens:
            yield entry_name, value
        if opens:
            parents.append(parent)
            parent = value
            if len(parents) > MAX_DEPTH:
                raise UsageError(
                    f"{source.name}: row {source.elements + 1:,} is nested more than {MAX_DEPTH:,} "
                    "levels deep: remove it"
                )


class _HalfPair(Exception):
    """The file has an escape for half of a surrogate pair."""


class _Source:
    """A file for ijson. It finds what ijson changes, and stops at an element without an end."""

    def __init__(self, handle: IO[bytes], name: str) -> None:
        self.name = name
        self.elements = 0
        self.bytes_since = 0
        """Bytes since the last element."""
        self.ended = False
        self._handle = handle
        self._held = b""
        """Bytes that may begin a surrogate pair. They are passed on with the bytes after them."""
        if handle.read(len(BOM_UTF8)) != BOM_UTF8:
            handle.seek(0)

    def read(self, size: int) -> bytes:
        decided = 0
        text = b""
        while size and not decided and not self.ended:
            chunk = self._handle.read(size)
            self.ended = not chunk
            self._count(len(chunk))
            text = self._held + chunk
            decided = _decided(text, self.ended)
            self._held = text[decided:]
        return text[:decided]

    def _count(self, size: int) -> None:
        self.bytes_since += size
        if self.bytes_since > LARGEST_ELEMENT:
            raise UsageError(
                f"{self.name}: row {self.elements + 1:,} has no end within {self.bytes_since:,} "
                "bytes: look for a quotation mark that is never closed"
            )


def _decided(text: bytes, is_end: bool) -> int:
    """Return how many bytes of a text hold no half of a surrogate pair, whatever follows.

    Raises _HalfPair for a half whose other half does not follow.
    """
    size = len(text)
    incomplete = -1 if is_end else text.rfind(b"\\", max(size - _PAIR // 2 + 1, 0))
    if b"\\ud" in text or b"\\uD" in text:
        for match in _SURROGATES.finditer(text):
            if match[1] and (is_end or match.start() <= size - _PAIR):
                raise _HalfPair
            if match[1]:
                return match.start()
    return size if incomplete < 0 else incomplete


def _load(handle: IO[bytes], name: str, key: str | None, count: int) -> list[tuple[str, Any]]:
    """The whole array or object, as Python's `json` reads it. ijson read `count` elements of it."""
    data = handle.read(LARGEST_WHOLE + 1)
    if len(data) > LARGEST_WHOLE:
        raise UsageError(
            f"{name}: row {count + 1:,} or a row near it is not standard JSON, and the file is too "
            f"large to load whole ({LARGEST_WHOLE >> 30} GiB): convert it to JSON lines"
        )
    text = data.decode("utf-8-sig")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        if not text.rstrip().endswith(("]", "}")):
            raise CutOffError(count) from None
        raise UsageError(f"{name}: row {count + 1:,} is not JSON: {error}") from None
    elements = whole[key] if key else whole
    return list(elements.items()) if isinstance(elements, dict) else [("", e) for e in elements]


def text_or_problem(value: Any) -> Any:
    """Return a decoded record, or its Problem: half of a surrogate pair is not text."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Problem("not JSON", "half of a surrogate pair")
    return value
